"""What the page on training shows beside its figures: its Records, and tables of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from multigpu import paths
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import in_order, look
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.training import (
    ALLOWED,
    curves_frame,
    job_name,
    reach_frame,
    same_curve_table,
    scores_frame,
    shape_text,
    training_frame,
    training_records,
)
from multigpu.analysis.training_staged import staged_pairs
from multigpu.conditions import LEAST_ENERGY_S
from multigpu.parameters import Measure
from multigpu.record import STATUSES
from multigpu.training.grid import default_grid, find_grid
from multigpu.training.measure import points, train
from multigpu.training.record import TrainingMeasurement, TrainingRecord, TrainingStore
from multigpu.training.run import TrainingRun

NOT_MEASURED = "not measured"
LEVEL_SHARE = 0.95
"""The level of "time to accuracy" is this share of the best accuracy that any compared run reached, so that no figure is typed."""

COMPARED = ["machine", "model", "inputs", "scaling", "epochs", "rate_scaling", "schedule"]
"""What runs have in common that are to reach one level: one job, one budget and one law for the rate."""


@dataclass(frozen=True)
class Seen:
    """Every Record, those of GPUs first, as `analysis.training` has them.

    same: of `same_curve_table`. reach: of `reach_frame`, each run at its job's level.
    """

    records: list[TrainingRecord]
    frame: pd.DataFrame
    curves: pd.DataFrame
    scores: pd.DataFrame
    same: pd.DataFrame
    reach: pd.DataFrame


def observe(measure: Measure, grid: str = "auto") -> Seen:
    """Train as asked, and read the Records.

    Raises:
        ValueError: no such grid, or a file is no Record.
    """
    store = TrainingStore(paths.TRAINING)
    if measure != "none":
        chosen = points(find_grid(default_grid() if grid == "auto" else grid))
        print(train(chosen, store, retry=STATUSES if measure == "all" else ()))
    return see(training_records(store))


def see(records: list[TrainingRecord]) -> Seen:
    """These Records' frames, of every machine."""
    records = sorted(records, key=lambda record: not record.machine.gpus)
    frame, curves = training_frame(records), curves_frame(records)
    return Seen(records, frame, curves, scores_frame(records), same_curve_table(frame, curves), levelled(records, frame))


def levelled(records: list[TrainingRecord], frame: pd.DataFrame) -> pd.DataFrame:
    """`reach_frame` of every run at LEVEL_SHARE of the best accuracy of the runs that it is compared with (COMPARED), in whole percent."""
    by_key = {record.key: record for record in records}
    parts = []
    groups: Any = frame.groupby(COMPARED, sort=False, dropna=False)
    for _, own in groups:
        if not math.isnan(top := own["best_accuracy"].max()):
            parts.append(reach_frame([by_key[key] for key in own["key"]], [math.floor(100 * LEVEL_SHARE * top) / 100]))
    return pd.concat(parts, ignore_index=True) if parts else reach_frame([], [])


def curve_table(seen: Seen) -> Shown:
    """Every run that is compared: distance, tolerance, last loss, accuracy."""
    rows = []
    for panel in dict.fromkeys(seen.same["panel"]):
        table = seen.same[seen.same["panel"] == panel]
        for placement in in_order(table["placement"]):
            for _, row in table[table["placement"] == placement].iterrows():
                rows.append(
                    {
                        "Job": panel,
                        "Placement": look(placement).label + shape_text(row["processes"]),
                        "Precision": row["precision"],
                        "Execution": row["execution"],
                        "Distance": f"{row['distance']:.1e}",
                        "Tolerance": f"{row['tolerance']:.1e}",
                        "Same curve": _said_same(row),
                        "Last loss": f"{row['last_loss']:.4f}",
                        "Accuracy": percent(row["accuracy"]),
                    }
                )
    note = (
        f"Tolerance: {ALLOWED:g} times the drift of fp32, and in fp64, which rounds 2²⁹ times as finely, that much less. Reference: the "
        "run that the others are compared with. Yardstick: the run whose distance is the drift. "
        f"{''.join(text for word, text in UNTOLD.items() if any(row['Same curve'] == word for row in rows))}"
        "Accuracy: held-out images. Last loss: mean of the last tenth."
    )
    return tables_by(pd.DataFrame(rows), "Job", note, ["Distance", "Tolerance", "Last loss", "Accuracy"])


NOT_TOLD = "the tolerance does not tell independent replicas apart here"
UNTOLD = {
    "not told": f"Not told: {NOT_TOLD}. ",
    "no replicas": "No replicas: no independent replicas were trained here to show what the tolerance can tell. ",
}
"""What stands for yes or no where a run is not counted, and what it means."""


def _said_same(row: pd.Series) -> str:
    if row["role"] != "compared":
        return {"free": "need not"}.get(row["role"], row["role"])
    if pd.isna(row["same"]):
        return "no replicas" if pd.isna(row["replicas"]) else "not told"
    return "yes" if row["same"] else "no"


def percent(value: float) -> str:
    """A share in percent, or nothing."""
    return "" if pd.isna(value) else f"{value:.1%}"


def system_table(seen: Seen) -> Shown:
    """What 002 asks of any system: accuracy, time to it, efficiency, overhead, power and cost; a row a placement and number of devices.

    Efficiency is T_1 / (N T_N) of a training step on one joined batch, with T_1 of ddp on one device; overhead is the share of T_N
    that is not T_1 / N, 1 - efficiency. Power is energy over the seconds it was counted in, as NVML counted it, where these are long
    enough for its counters. Cost is what is paid for: devices x time to the level, in GPU-seconds.
    """
    ok = seen.frame[(seen.frame["status"] == "ok") & (seen.frame["scaling"] == "strong") & (seen.frame["precision"] == "fp32")]
    ok = ok[ok["accuracy"].notna() | (ok["device_type"] == "cuda")]  # else nothing of it is known
    pairs = staged_pairs(seen.frame, seen.curves, seen.reach)
    ok = ok[~ok["key"].isin({*pairs["key"], *pairs["key_twin"]} - {*seen.same["key"]})]  # which have a section of their own
    merged = ok.merge(seen.reach, on="key", how="left", suffixes=("", "_to"))
    rows = []
    for (machine, model, inputs, _, _), job in merged.groupby(["machine", "model", "inputs", "joined_batch", "base_rate"], sort=False):
        alone = job[(job["devices"] == 1) & (job["placement"] == "ddp")].groupby("execution")["step_time_s"].mean()
        for placement in in_order(job["placement"]):
            own = job[job["placement"] == placement].sort_values(["devices", "execution"])
            for _, row in own.iterrows():
                gpu = row["device_type"] == "cuda"
                single = float(alone.get(row["execution"], math.nan)) / row["devices"]
                efficiency = single / row["step_time_s"]
                counted = not pd.isna(row["energy_j"]) and not pd.isna(row["energy_s"])
                short = counted and row["energy_s"] < LEAST_ENERGY_S
                power = row["energy_j"] / row["energy_s"] if counted and not short else math.nan
                rows.append(
                    {
                        "Machine": machine,
                        "Job": job_name(str(model), str(inputs)),
                        "Placement": _placement_text(row),
                        "N": f"{row['devices']}",
                        "Accuracy": percent(row["accuracy"]),
                        "Level": percent(row["level"]),
                        "Time, s": _to_level(row, row["seconds"], ".1f") if gpu else "not compared",
                        "Steps": _to_level(row, row["steps_to"], ".0f"),
                        "Efficiency": f"{efficiency:.2f}" if gpu and not math.isnan(efficiency) else NOT_MEASURED,
                        "Overhead": f"{1 - efficiency:.0%}" if gpu and not math.isnan(efficiency) else NOT_MEASURED,
                        "Power, W": f"{power:,.0f}" if not math.isnan(power) else "" if short else NOT_MEASURED,
                        "Energy, kJ": f"{row['energy_j'] / 1e3:.1f}" if not math.isnan(power) else "" if short else NOT_MEASURED,
                        "Cost, GPU-s": _to_level(row, row["devices"] * row["seconds"], ".1f") if gpu else "not compared",
                    }
                )
    note = (
        "One joined batch, whatever the number of devices (strong scaling); one run each (screening). Level: 95% of the best accuracy of "
        "the job; time, steps and cost (N times the time) are those to it, as evaluations after every epoch tell. What a GPU-second is "
        "paid with no Record holds. Times of CPU processes that share their cores with others are not compared."
    )
    if any(row["Power, W"] == "" for row in rows):
        note += f" No power or energy: training shorter than the {LEAST_ENERGY_S} s that the counters need."
    figures = ["N", "Accuracy", "Level", "Time, s", "Steps", "Efficiency", "Overhead", "Power, W", "Energy, kJ"]
    return tables_by(pd.DataFrame(rows), "Job", note, [*figures, "Cost, GPU-s"])


def _placement_text(row: pd.Series) -> str:
    """The placement, and what is unusual of how it was carried out."""
    return look(row["placement"]).label + shape_text(row["processes"]) + ("" if row["execution"] == "eager" else f", {row['execution']}")


def _to_level(row: pd.Series, value: float, form: str) -> str:
    """What a run took to its level; nothing where its job has none."""
    if pd.isna(row["level"]):
        return ""
    return "never" if pd.isna(value) else f"{value:{form}}"


def duties_table(seen: Seen) -> Shown:
    """What Records say of the five duties: how many runs, and what was checked in them."""
    trained = [(r.training, r.measurement) for r in seen.records if r.measurement and r.training.run.devices > 1]
    several = [m for _, m in trained]
    scheduled = sum(held_its_schedule(training, m) for training, m in trained)
    replicated = [m for m in several if m.replicas_agree is not None]
    audited = [audit for m in several for audit in m.epochs if audit.complete]
    covered = sum(audit.distinct == audit.items and audit.shared <= audit.allowed for audit in audited)
    alone = sum(not any(m.files_by_rank[1:]) and not any(m.evaluations_by_rank[1:]) for m in several)
    rows = [
        (
            "Identical initial weights",
            f"{sum(len(set(m.start_hashes)) == 1 for m in several)} of {len(several)} runs: one hash on all replicas",
        ),
        (
            "Synchronised gradients",
            f"{sum(bool(m.replicas_agree) for m in replicated)} of {len(replicated)} runs with copies: equal bits at every stop",
        ),
        (
            "Disjoint shards that cover the data",
            f"{covered} of {len(audited)} whole epochs: every item, none twice but what fills the last step",
        ),
        (
            "Rate and steps adjusted to N",
            f"{scheduled} of {len(several)} runs: the optimizers held the schedule's rate at every point of the curve",
        ),
        ("One rank evaluates, checkpoints, logs", f"{alone} of {len(several)} runs: no other rank scored or opened a file for writing"),
    ]
    data = pd.DataFrame([{"Duty": name, "Checked in Records": text} for name, text in rows] if several else [])
    return table_html(data, note="A run in which a duty is not done has no measurement: it is refused, in a sentence that names the duty.")


def held_its_schedule(training: TrainingRun, m: TrainingMeasurement) -> bool:
    """Whether the rate that the optimizers held at each point's last step is the schedule's."""
    schedule = training.schedule_of(m.steps_per_epoch)
    last = [min((point + 1) * training.log_every, m.steps) - 1 for point in range(len(m.rate))]
    return all(math.isclose(rate, schedule.rate(step), rel_tol=1e-6) for rate, step in zip(m.rate, last, strict=True))


def failures_table(seen: Seen) -> Shown:
    """Runs without a measurement, and why."""
    bad = seen.frame[seen.frame["status"] != "ok"]
    rows = [
        {"Run": f"{row['model']} {row['placement']} x{row['devices']} {row['execution']}", "Status": row["status"], "Why": row["reason"]}
        for _, row in bad.iterrows()
    ]
    return table_html(pd.DataFrame(rows, columns=["Run", "Status", "Why"]), note="" if rows else "No run failed.", wide=["Why"])
