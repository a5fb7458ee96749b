"""The calculator of a step and its memory, and the memory bars, as one element of a page."""

import json
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader

from multigpu.analysis.forecast_lines import NETWORK
from multigpu.analysis.limits import ceilings
from multigpu.analysis.points import Missing, where
from multigpu.analysis.query import measure_command, run_of
from multigpu.analysis.read import Study, need
from multigpu.analysis.show import Shown
from multigpu.analysis.words import WORDS, named
from multigpu_study.analysis import calculator as formulas

TEMPLATE = Environment(
    loader=PackageLoader("multigpu_study.report", "."), autoescape=True, keep_trailing_newline=True
).get_template("calculator.html.j2")
PRECISIONS = ("bf16", "tf32", "fp32")
FIRST = "gpt2_774m"
SHOWN = ("name", "placement", "form", "devices", "batch", "precision")
"""Fields of a point that a reader sees."""
PARTS = {
    "variables": "variables",
    "gradients": "gradients",
    "states": "optimizer states",
    "activations": "activations",
    "pieces": "from other GPUs",
}


def fixed_numbers(gpu: str) -> dict[str, float]:
    """Return the numbers of a machine's GPUs that a reader does not move, in the units of
    `calculator.FORMULAS`.
    """
    known = {name: one.value for name, one in ceilings(gpu).items()}
    return {
        "memory": known["memory"],
        "link": known["device_link"],
        "host_link": known["host_link"],
        "latency": NETWORK.inside_latency_s,
        "node": NETWORK.node,
        "network": NETWORK.between_bytes_per_s,
        "network_latency": NETWORK.between_latency_s,
    }


def measured_points(points: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the points beside which a forecast is shown: of PyTorch, with a known model."""
    every = formulas.tables()
    chosen = where(
        points[points["n"].gt(0)],
        **{"framework": "torch", "scaling": "weak", "inputs": "synthetic"},
        execution=list(every["forms"]),
        placement=list(every["placements"]),
        model=list(every["models"]),
    )
    found = [
        {name: row[name] for name in ("machine", "placement", "devices", "precision", "n")}
        | {name: every["models"][row["model"]][name] for name in ("parameters", "flops")}
        | {"name": row["model"], "model": WORDS["model"].get(row["model"], row["model"])}
        | {"batch": row["batch_size"]}
        | {"form": row["execution"], "step_ms": float(f"{1e3 * row['step_time_s']:.5g}")}
        | _samples(row)
        | {"command": measure_command(run_of(row))}
        for row in chosen.to_dict("records")
    ]
    # of points that differ in other fields alone, the plainest, with most repeats
    found.sort(key=lambda one: (len(one["command"]), -one["n"]))
    kept: dict[tuple[Any, ...], dict[str, Any]] = {}
    for one in found:
        kept.setdefault(tuple(one[name] for name in SHOWN), one)
    return list(kept.values())


def _samples(row: Any) -> dict[str, float | None]:
    """Return the rate in samples/s, and its ends where there are repeats."""
    rate = row["devices"] * row["batch_size"] / row["step_time_s"]
    ends = {name: row[f"rate_{name}"] / row["rate"] * rate for name in ("low", "high")}
    return {"rate": rate} | {
        name: None if pd.isna(end) else float(f"{end:.5g}") for name, end in ends.items()
    }


def calculator(study: Study) -> Shown:
    """Show what a job of a reader's numbers should take on GPUs like the page's machine: step,
    rate, efficiency, memory with their bands, the nearest measured point, and memory bars of all
    placements. Missing: the machine's links or products were not measured.
    """
    gpus = need(where(study.points, device_type="cuda"), "points on GPUs")["gpu"]
    known = ceilings(str(gpus.iloc[0]))
    peaks = {name: known[name].value for name in PRECISIONS if name in known}
    if not peaks or not {"device_link", "memory"} <= set(known):
        raise Missing("products and links of these GPUs were not measured")
    every = formulas.tables()
    fields = {"placement": every["placements"], "execution": every["forms"]}
    said = {field: {one: named(field, one) for one in names} for field, names in fields.items()}
    data = {
        **every,
        "fixed": fixed_numbers(str(gpus.iloc[0])),
        "peaks": peaks,
        "measured": measured_points(where(study.everywhere, gpu=str(gpus.iloc[0]))),
        "memory": formulas.MEMORY,
        "words": PARTS,
        "said": said,
        "first": FIRST if FIRST in every["models"] else next(iter(every["models"])),
    }
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return Shown(
        TEMPLATE.render(
            models={name: WORDS["model"].get(name, name) for name in every["models"]},
            placements=said["placement"],
            forms=said["execution"],
            peaks=list(peaks),
            link=round(known["device_link"].value / 1e9, 1),
            note=f"Links, products and memory: as measured on {study.machine}.",
            data=text,
            program=formulas.javascript(),
        )
    )
