"""Tables beside the figures of rates, schedules and batches."""

from __future__ import annotations

from typing import Any, get_args

import pandas as pd

from multigpu.analysis.figure_training_rates import batch_points, rule_points, schedule_points, seeds_of
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.ordinary import usual_buckets
from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.training import job_name
from multigpu.analysis.training_models import alike
from multigpu.analysis.training_page import Seen, percent
from multigpu.analysis.wording import MODEL_NAMES, joined, plural
from multigpu.run import Precision


def _range(values: pd.Series, form: str) -> str:
    """Mean (least to most)."""
    return f"{values.mean():{form}} ({values.min():{form}} to {values.max():{form}})"


def rules_table(seen: Seen) -> Shown:
    """Accuracy under each rule for the rate: mean and range over seeds, and runs that diverged."""
    table = rule_points(seen.frame)
    rows = []
    names = {("none", "constant"): "not scaled", ("linear", "constant"): "scaled, no warm-up", ("linear", "warmup"): "scaled, warmed up"}
    for (machine, model, inputs, devices, multiple, scaling, schedule), group in table.groupby(
        ["machine", "model", "inputs", "devices", "multiple", "rate_scaling", "schedule"], sort=True
    ):
        rows.append(
            {
                "Machine": machine,
                "Job": job_name(str(model), str(inputs)),
                "Devices": str(devices),
                "Joined batch": f"{group['joined_batch'].iloc[0]:,}",
                "Rate": "of the small batch" if multiple == 1 else names[str(scaling), str(schedule)],
                "Peak rate": f"{group['peak_rate'].iloc[0]:g}",
                "Seeds": str(group["seed"].nunique()),
                "Accuracy": _range(group["accuracy"], ".1%"),
                "Diverged": str(int(group["diverged"].sum())),
            }
        )
    jobs = [job_name(str(model), str(inputs)) for model, inputs in table[["model", "inputs"]].to_numpy()]
    rows.sort(key=lambda row: jobs.index(str(row["Job"])))  # as the figure has them
    right = ["Devices", "Joined batch", "Peak rate", "Seeds", "Diverged"]
    return tables_by(pd.DataFrame(rows), "Job", "Mean and range over seeds.", right)


def schedule_table(seen: Seen) -> Shown:
    """luong10 on one device and on N, adjusted and not: where the rate ended, loss, accuracy."""
    table = schedule_points(seen.frame)
    ends = seen.curves.sort_values("step").groupby("key").tail(1).set_index("key")["rate"]
    rows = []
    for (model, inputs, devices, adjusted), group in table.groupby(["model", "inputs", "devices", "adjusted"], sort=True):
        if devices == 1 and not adjusted:
            continue
        rates = ends.reindex(group["key"])
        rows.append(
            {
                "Job": job_name(str(model), str(inputs)),
                "Devices": str(devices),
                "Schedule": "one device" if devices == 1 else "adjusted" if adjusted else "not adjusted",
                "Rate at the end": f"{rates.mean():.2e}",
                "Steps": f"{group['steps'].mean():,.0f}",
                "Training loss at the end": _range(group["last_loss"], ".4f"),
                "Accuracy": _range(group["accuracy"], ".1%"),
                "Seeds": str(group["seed"].nunique()),
            }
        )
    note = "Mean and range over seeds; equal epochs, weak scaling."
    return tables_by(pd.DataFrame(rows), "Job", note, ["Devices", "Rate at the end", "Steps", "Seeds"])


def decayed(seen: Seen) -> Shown:
    """What document 004's decay does on one device beside the constant rate, of runs that are equal in all else; nothing without a pair."""
    ok = seen.frame[(seen.frame["status"] == "ok") & (seen.frame["devices"] == 1) & (seen.frame["rate_scaling"] == "none")]
    equal = ["machine", "model", "inputs", "placement", "joined_batch", "seed", "epochs", "base_rate", "precision", "execution"]
    constant, falling = ok[ok["schedule"] == "constant"], ok[(ok["schedule"] == "luong10") & ok["adjusted"]]
    pairs = falling.merge(constant, on=equal, suffixes=("", "_constant"))
    pairs = pairs[pairs["accuracy"].notna() & pairs["accuracy_constant"].notna()]
    said = []
    jobs: Any = pairs.groupby(["model", "inputs", "machine"], sort=False)
    for (model, inputs, machine), own in jobs:
        said.append(
            f"{job_name(str(model), str(inputs))} ({machine}): with the decay one device reaches {own['accuracy'].mean():.1%}, at the "
            f"constant rate {own['accuracy_constant'].mean():.1%} ({plural(own['seed'].nunique(), 'seed')})."
        )
    return paragraphs(*said, kind="said")


def batch_table(seen: Seen) -> Shown:
    """Every batch: steps, accuracy, and steps and epochs to the level; over seeds where there are several."""
    table = batch_points(seen.frame).merge(seen.reach, on="key", how="left", suffixes=("", "_to"))
    rows = []
    if len(table):
        several = table.groupby(["model", "inputs", "joined_batch"])["seed"].nunique().max() > 1
        for (model, inputs, batch), group in table.groupby(["model", "inputs", "joined_batch"], sort=True):
            diverged = int(group["diverged"].sum())
            rows.append(
                {
                    "Job": job_name(str(model), str(inputs)),
                    "Joined batch": f"{batch:,}",
                    "Peak rate": f"{group['peak_rate'].iloc[0]:g}",
                    "Seeds": str(group["seed"].nunique()) if several else "",
                    "Steps": f"{group['steps'].mean():,.0f}",
                    "Accuracy": (_range(group["accuracy"], ".1%") if len(group) > 1 else percent(group["accuracy"].iloc[0]))
                    + ("" if not diverged else " (diverged)" if len(group) == 1 else f" ({diverged} diverged)"),
                    "Level": percent(group["level"].iloc[0]),
                    "Steps to it": _reached(group["steps_to"], ",.0f"),
                    "Epochs to it": _reached(group["epochs_to"], ".0f"),
                }
            )
    note = (
        f"{seeds_of(table)} A larger batch needs fewer steps up to a point, and then more epochs, until the budget does not suffice."
        f"{_two_references(seen.frame)}"
    )
    right = ["Joined batch", "Peak rate", "Seeds", "Steps", "Accuracy", "Level", "Steps to it", "Epochs to it"]
    return tables_by(pd.DataFrame(rows), "Job", note, right)


def _two_references(frame: pd.DataFrame) -> str:
    """That the smallest batch stands on the page twice, constant and warmed up; on GPUs, claims C32 and C46 divide by one each."""
    rules, swept = rule_points(frame), batch_points(frame)
    said = []
    jobs: Any = rules.groupby(["machine", "model", "inputs", "device_type"], sort=False)
    for (machine, model, inputs, device), own in jobs:
        small, large = own[own["multiple"] == 1], own[(own["multiple"] == 8) & (own["schedule"] == "warmup")]["accuracy"]
        same = (swept["machine"] == machine) & (swept["model"] == model) & (swept["inputs"] == inputs) & (swept["multiple"] == 1)
        warm, constant = swept.loc[same, "accuracy"], small["accuracy"]
        if warm.empty or constant.empty or large.empty:
            continue
        claimed = device == "cuda"
        said.append(
            f" {job_name(str(model), str(inputs))}: here the batch of {small['joined_batch'].iloc[0]:,} is warmed up, as all are, and "
            f"reaches {warm.mean():.1%} ({plural(len(warm), 'seed')}){', which C46 divides by' if claimed else ''}; at a constant rate, "
            f"as in the table of rules, {constant.mean():.1%} ({plural(len(constant), 'seed')})"
            f"{', which C32 divides by' if claimed else ''}."
        )
        if claimed:
            said.append(
                f" Eight times that batch reaches {large.mean() / warm.mean():.2f} times the one and {large.mean() / constant.mean():.2f} "
                "times the other."
            )
    return "".join(said)


def efficiency_points(runs: pd.DataFrame) -> pd.DataFrame:
    """Of the Runs by which C46 tells efficiency: ResNet-50 in bf16, whole steps as one CUDA graph, under DDP with its usual buckets, on
    the most GPUs on which three batches were measured; rows of `scaling_table`, with joined_batch.

    runs: of `study.published`.
    """
    where = {"model": "resnet50_v1.5", "placement": "ddp", "framework": "torch", "precision": "bf16", "scaling": "weak"}
    where |= {"inputs": "synthetic", "execution": "captured", "status": "ok", "device_type": "cuda"}
    own = usual_buckets(runs[pd.concat([runs[name] == value for name, value in where.items()], axis=1).all(axis=1)])
    own = own[own[["wire_dtype", "all_reduce_spec"]].isna().all(axis=1)]
    table = scaling_table(own)
    table = table[(table["devices"] > 1) & table["efficiency"].notna()]
    sizes = table.groupby("devices")["batch_size"].nunique()
    table = table[table["devices"] == sizes[sizes >= LEAST_BATCHES].index.max()]
    return table.assign(joined_batch=table["devices"] * table["batch_size"]).sort_values("joined_batch")


LEAST_BATCHES = 3
"""Batches that make a course of efficiency."""


def efficiency_table(seen: Seen, runs: pd.DataFrame) -> Shown:
    """002's sentence in one table: what a bigger joined batch gives in efficiency, and what it leaves of accuracy.

    runs: as in `efficiency_points`. Accuracy: of `batch_points` on GPUs, a column a job.
    """
    measured, trained = efficiency_points(runs), batch_points(seen.frame)
    trained = trained[trained["device_type"] == "cuda"]
    if measured.empty or trained.empty:
        return table_html(pd.DataFrame(), note="Efficiency by batch and accuracy by batch have not both been measured yet.")
    jobs = list(dict.fromkeys((str(model), str(inputs)) for model, inputs in trained[["model", "inputs"]].to_numpy()))
    alone = len({model for model, _ in jobs}) == len(jobs)
    names = {job: f"Accuracy, {MODEL_NAMES.get(job[0], job[0]) if alone else job_name(*job)}" for job in jobs}
    rows: dict[int, dict[str, str]] = {
        int(batch): {"Joined batch": f"{batch:,}", "Images a GPU": "", "Efficiency, ResNet-50": "", **dict.fromkeys(names.values(), "")}
        for batch in sorted({*measured["joined_batch"], *trained["joined_batch"]})
    }
    for _, row in measured.iterrows():
        bounds = "" if pd.isna(row["efficiency_low"]) else f" ({row['efficiency_low']:.1%} to {row['efficiency_high']:.1%})"
        cells = {"Images a GPU": f"{row['batch_size']}", "Efficiency, ResNet-50": f"{row['efficiency']:.1%}{bounds}"}
        rows[int(row["joined_batch"])] |= cells
    groups: Any = trained.groupby(["model", "inputs", "joined_batch"])["accuracy"]
    for (model, inputs, batch), accuracy in groups:
        rows[int(batch)][names[str(model), str(inputs)]] = _range(accuracy, ".1%") if len(accuracy) > 1 else percent(accuracy.iloc[0])
    least, most = measured.iloc[0], measured.iloc[-1]
    note = (
        f"Efficiency: the rate of a GPU among {plural(int(most['devices']), 'GPU')} ({most['machine']}) over that of one alone with as "
        "many images, 95% intervals; bf16, a whole step as one CUDA graph. Accuracy: "
        f"{joined([job_name(*job) for job in jobs])}, equal epochs, the rate scaled with the batch and warmed up, mean and range over "
        "seeds where there are several. Two models, joined by their batch alone: no "
        f"ResNet-50 was trained to its end here. {least['batch_size']} images a GPU already reach {least['efficiency']:.1%}, "
        f"{most['batch_size']} reach {most['efficiency'] / least['efficiency']:.2f} times that. Empty: not measured."
    )
    return table_html(pd.DataFrame(list(rows.values())), note=note, right=list(rows[int(least["joined_batch"])]))


def precision_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Runs on one device that differ in precision and seed alone, of at least two precisions: constant rates, as C34 asks. Runs that
    compare models (`training_models.alike`) have a table of their own.
    """
    ok = frame[(frame["status"] == "ok") & (frame["placement"] == "ddp") & (frame["devices"] == 1) & frame["accuracy"].notna()]
    ok = ok[(ok["rate_scaling"] == "none") & (ok["schedule"] == "constant") & ~ok["key"].isin(alike(frame)["key"])]
    jobs = ["machine", "model", "inputs", "joined_batch", "base_rate", "epochs", "execution"]
    return ok[ok.groupby(jobs)["precision"].transform("nunique") > 1] if len(ok) else ok


def precision_table(seen: Seen) -> Shown:
    """Accuracy and rate of training in each precision: of every seed, mean and range."""
    table = precision_points(seen.frame)
    rows = []
    jobs: Any = table.groupby(["machine", "model", "inputs", "joined_batch", "epochs", "execution"], sort=False)
    for (machine, model, inputs, batch, epochs, execution), job in jobs:
        single = job[job["precision"] == "fp32"]["units_per_s"].mean()
        for precision in (name for name in get_args(Precision) if name in set(job["precision"])):
            own = job[job["precision"] == precision].sort_values("seed")
            rate = own["units_per_s"].mean()
            rows.append(
                {
                    "Job": job_name(str(model), str(inputs)),
                    "Machine": machine,
                    "Precision": precision,
                    "Joined batch": f"{batch:,}",
                    "Epochs": f"{epochs:.0f}",
                    "Execution": execution,
                    "Accuracy": _range(own["accuracy"], ".1%") if len(own) > 1 else percent(own["accuracy"].iloc[0]),
                    "Seed by seed": ", ".join(f"{value:.1%}" for value in own["accuracy"]),
                    "Images/s": f"{rate:,.0f}",
                    "Over fp32": "" if pd.isna(single) else f"{rate / single:.2f}",
                }
            )
    note = (
        "One GPU, a constant rate, equal epochs. Mean and range over seeds; one seed is screening. Rates are of training as a whole, means."
    )
    return tables_by(
        pd.DataFrame(rows), "Job", note if rows else "No Record to show.", ["Images/s", "Over fp32", "Epochs"], wide=["Seed by seed"]
    )


def _reached(values: pd.Series, form: str) -> str:
    """Mean of the runs that reached the level, and how many, where some did not."""
    known = values.dropna()
    if known.empty:
        return "never"
    return f"{known.mean():{form}}" + ("" if len(known) == len(values) else f" ({len(known)} of {len(values)})")
