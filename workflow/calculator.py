"""Write what the calculator takes from the committed Records, into its `calculator.yaml`.

forms: of each form of execution, how a step of one device follows from operations and bytes, and
the bands in which 95 of 100 measured steps and peaks lie of models that were left out. models: what
the calculator offers. Run this after new Records are committed, behind `workflow/merge_cost.py`:
`PYTHONPATH=src python workflow/calculator.py`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy.optimize import least_squares

from multigpu import paths
from multigpu.analysis.expected import KERNELS
from multigpu.analysis.forecast_lines import NETWORK
from multigpu.analysis.limits import ceilings, model_of
from multigpu.analysis.merge_cost import merge_costs
from multigpu.analysis.points import where
from multigpu.analysis.query import run_of
from multigpu.analysis.read import frames
from multigpu.placements import find_placement
from multigpu.placements.memory import needed
from multigpu.spec.model import Model, block_of, optimizer_of
from multigpu_study.analysis.calculator import FORMS, TABLE, calculate, of_placement
from multigpu_study.analysis.merge_cost import band_of

UNKNOWN = ("used", "passes", "floor_s")
BANDS = ("one_low", "one_high", "peak_low", "peak_high")
PLACED = (
    "ddp",
    "zero1",
    "zero2",
    "fsdp2",
    "replicated_allreduce",
    "replicated_copy",
    "independent",
)


def largest_part(model: Model) -> float:
    """Return the share of a model's parameters in the part that is gathered at once."""
    parts: dict[str, int] = {}
    for variable in model.variables:
        name = variable.name
        part = name.split(".")[0] if model.unit == "images" else block_of(name)
        parts[part] = parts.get(part, 0) + variable.elements
    return max(parts.values()) / sum(parts.values())


def jobs(every: pd.DataFrame) -> pd.DataFrame:
    """Return a row a measured point of PyTorch: its model's numbers, its step and its peak."""
    chosen = where(
        every[every["n"].gt(0)],
        device_type="cuda",
        framework="torch",
        execution=list(FORMS),
        placement=list(PLACED),
        scaling="weak",
        inputs="synthetic",
        processes="per_device",
    )
    rows = []
    for row in chosen.to_dict("records"):
        limits = {name: one.value for name, one in ceilings(row["gpu"]).items()}
        if row["precision"] not in limits or "device_link" not in limits:
            continue
        model, run = model_of(row), run_of(row)
        units = row["rate"] * row["step_time_s"] / row["devices"]
        rows.append(
            {name: row[name] for name in ("model", "precision", "placement", "devices")}
            | {"kernels": " ".join(str(row[name]) for name in KERNELS)}
            | {"form": row["execution"], "batch": row["batch_size"], "step_s": row["step_time_s"]}
            | {"peak_bytes": row["peak_memory_gib"] * 2**30, "held": needed(run, model).held}
            | {"parameters": sum(variable.elements for variable in model.variables)}
            | {"flops": model.forward_flops_per_unit * units / row["batch_size"]}
            | {"peak": limits[row["precision"]], "memory": limits["memory"]}
            | {"link": limits["device_link"], "host_link": limits["host_link"]}
            | {"slots": optimizer_of(run, model).slots, "largest": largest_part(model)}
            | {"micro": run.micro_steps or 1, "recomputed": bool(run.recompute)}
        )
    table = pd.DataFrame(rows)
    return table[table["micro"].eq(1) & ~table["recomputed"]].reset_index(drop=True)


def with_activations(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the bytes that a sample adds to a step: the median over points of their
    model, precision and kernels on one device, or on more where none was measured.
    """
    own = (table["peak_bytes"] - table["held"]) / table["batch"]
    alone = own.where(table["devices"].eq(1))
    by = [table["model"], table["precision"], table["kernels"]]
    known = alone.groupby(by).transform("median").fillna(own.groupby(by).transform("median"))
    return table.assign(activations=known)


def told(table: pd.DataFrame, form: str, solved: np.ndarray) -> pd.DataFrame:
    """Return what the calculator says of each row, with these three numbers of its form."""
    cost = merge_costs()[form]._asdict() | dict(zip(UNKNOWN, solved, strict=True))
    plain = {"known": 0, "one_s": 0, "node": NETWORK.node, "latency": 0.0}
    plain |= {"first_buckets": form == "eager"}
    plain |= {"one_low": 1, "one_high": 1, "peak_low": 1, "peak_high": 1}
    plain |= {"network": NETWORK.between_bytes_per_s, "network_latency": 5e-6}
    rows = [
        calculate(
            cost
            | plain
            | of_placement(find_placement(row["placement"]))
            | {name: value for name, value in row.items() if isinstance(value, int | float)}
        )
        for row in table.to_dict("records")
    ]
    return pd.DataFrame(rows, index=table.index)


def learned(table: pd.DataFrame) -> np.ndarray:
    """Return the three numbers of a form: with them, the logarithms of one device's steps are off
    by least, the far ones counting less.
    """
    one = table[table["devices"].eq(1)]
    columns = np.array(
        [
            3 * one["flops"] * one["batch"] / one["peak"],
            one["activations"] * one["batch"] / one["memory"],
            np.ones(len(one)),
        ]
    ).T
    steps = np.log(one["step_s"].to_numpy())
    found = least_squares(
        lambda logs: np.log(columns @ np.exp(logs)) - steps,
        np.log([1.5, 10, 1e-3]),
        loss="soft_l1",
        f_scale=0.1,
    )
    return np.asarray(np.exp(found.x))


def left_out(table: pd.DataFrame, form: str) -> pd.DataFrame:
    """Return each row's step (and peak) over what the calculator says without its model's own."""
    parts = []
    for model, own in table.groupby("model"):
        said = told(own, form, learned(table[table["model"].ne(model)]))
        parts.append(
            pd.DataFrame(
                {
                    "step": own["step_s"] / said["step_s"],
                    "peak": own["peak_bytes"] / said["memory_bytes"],
                    "model": model,
                    "devices": own["devices"],
                }
            )
        )
    return pd.concat(parts)


def without_itself(ratios: pd.DataFrame, name: str) -> pd.Series:
    """Return whether each ratio lies in the band that all other models give."""
    known = ratios.dropna(subset=name)
    parts = [
        own[name].between(*band_of(known.loc[known["model"].ne(model), name]))
        for model, own in known.groupby("model")
    ]
    return pd.concat(parts)


def written(points: pd.DataFrame) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return what the file holds, and a row a measured step or peak: form, what, held."""
    every = with_activations(jobs(points))
    known = every[every["activations"].gt(0)]
    forms: dict[str, Any] = {}
    tests = []
    for form in FORMS:
        own = known[known["form"].eq(form)]
        ratios = left_out(own, form)
        tests += [
            pd.DataFrame({"form": form, "what": name, "held": without_itself(ratios, name)})
            for name in ("step", "peak")
        ]
        ends = [*band_of(ratios["step"]), *band_of(ratios["peak"].dropna())]
        forms[form] = dict(zip(UNKNOWN, map(float, learned(own)), strict=True))
        forms[form] |= dict(zip(BANDS, map(float, ends), strict=True))
    models = {}
    for model, own in known[known["precision"].eq("bf16")].groupby("model"):
        if not str(model).startswith(("family", "trivial")):
            one = own.iloc[0]
            models[str(model)] = {
                "parameters": int(one["parameters"]),
                "flops": float(f"{own['flops'].median():.5g}"),
                "activations": float(f"{own['activations'].median():.5g}"),
                "largest": round(float(one["largest"]), 4),
                "slots": int(one["slots"]),
                "usual": int(own["batch"].mode().iloc[0]),
            }
    return {"forms": forms, "models": models}, pd.concat(tests)


def main() -> None:
    """Write the table, and say how many points lie in the bands that other models give."""
    found, held = written(frames(paths.RUNS)[1])
    print(held.groupby(["what", "form"])["held"].agg(["sum", "size", "mean"]))
    text = yaml.safe_dump(found, default_flow_style=None, width=99)
    Path(TABLE).write_text(text)


if __name__ == "__main__":
    main()
