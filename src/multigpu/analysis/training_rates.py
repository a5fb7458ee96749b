"""Tables beside the figures of rates, schedules and batches."""

from __future__ import annotations

from typing import Any

import pandas as pd

from multigpu.analysis.figure_training_rates import batch_points, rule_points, schedule_points, seeds_of
from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.tables import tables_by
from multigpu.analysis.training import job_name
from multigpu.analysis.training_page import Seen, percent
from multigpu.analysis.wording import plural


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
    note = f"{seeds_of(table)} A larger batch needs fewer steps up to a point, and then more epochs, until the budget does not suffice."
    right = ["Joined batch", "Peak rate", "Seeds", "Steps", "Accuracy", "Level", "Steps to it", "Epochs to it"]
    return tables_by(pd.DataFrame(rows), "Job", note, right)


def _reached(values: pd.Series, form: str) -> str:
    """Mean of the runs that reached the level, and how many, where some did not."""
    known = values.dropna()
    if known.empty:
        return "never"
    return f"{known.mean():{form}}" + ("" if len(known) == len(values) else f" ({len(known)} of {len(values)})")
