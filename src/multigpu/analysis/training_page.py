"""What the page on training says and shows beside its figures: Records, the answer, tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from multigpu import paths
from multigpu.analysis.figure_training_rates import rule_points
from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.style import in_order, look
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.training import (
    ALLOWED,
    LEAVES,
    curves_frame,
    job_name,
    reach_frame,
    same_curve_table,
    scores_frame,
    training_frame,
    training_records,
)
from multigpu.analysis.verdicts import verdicts
from multigpu.analysis.wording import joined
from multigpu.claims import TrainingPredicate, all_claims, evaluate
from multigpu.conditions import LEAST_ENERGY_S
from multigpu.parameters import Measure
from multigpu.training.grid import default_grid, find_grid
from multigpu.training.measure import EVERY_STATUS, points, train
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
        print(train(chosen, store, retry=("ok", *EVERY_STATUS) if measure == "all" else ()))
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


def answer(seen: Seen) -> Shown:
    """Two or three sentences, each only where Records support it."""
    sentences = []
    judged = seen.same[seen.same["same"].notna()]
    if len(judged):
        same = int(judged["same"].sum())
        whole = "Every one" if same == len(judged) else f"{same} of {len(judged)}"
        sentences.append(
            f"{whole} of the joined runs compared ({judged['placement'].nunique()} placements) "
            f"{'follows its' if same == len(judged) else 'follow their'} reference's loss curve to the end of the budget, within "
            f"{ALLOWED:g} times what rounding alone does{_in_fp64(judged[judged['same'].astype(bool)])}"
            + (": where parts live changes the time and not the result." if same == len(judged) else ".")
        )
        sentences += _leaving(seen.same)
    sentences += _rules(seen.frame)
    text = sentences or ["No Record supports an answer yet: `python -m multigpu train` trains the default grid."]
    return paragraphs(*text)


def _rules(frame: pd.DataFrame) -> list[str]:
    """Of each job: what every rule for the rate reached."""
    named = {"small": (1, "none", "constant"), "warm": (8, "linear", "warmup"), "bare": (8, "linear", "constant")}
    named["plain"] = (8, "none", "constant")
    said = []
    jobs: Any = rule_points(frame).groupby(["machine", "model", "inputs"], sort=False)
    for (machine, model, inputs), own in jobs:
        at = own.groupby(["multiple", "rate_scaling", "schedule"])["accuracy"].mean()
        if all(key in at.index for key in named.values()):
            values = {name: f"{at[key]:.1%}" for name, key in named.items()}
            said.append(
                f"At 8 times the batch and equal epochs, {job_name(str(model), str(inputs))} ({machine}) reaches {values['warm']} with a "
                f"rate scaled with the batch after a warm-up and {values['bare']} without one, {values['plain']} with an unscaled rate; "
                f"the small batch itself {values['small']}."
            )
    return said


def _in_fp64(judged: pd.DataFrame) -> str:
    double = judged[judged["precision"] == "fp64"]
    if double["placement"].nunique() < 2:
        return ""
    most = double["distance"].max()
    return f" (in fp64 {f'no further than {most:.1e}' if most else 'equal in every digit that a Record keeps'})"


def _leaving(same: pd.DataFrame) -> list[str]:
    """Of each job with runs that do not follow: which, from which step on, and from which step fp32's rounding parts ddp from itself."""
    said = []
    for panel, table in same.groupby("panel", sort=False):
        apart = table[table["same"].eq(False)]
        if apart.empty:
            continue
        names = joined([look(name).label for name in in_order(apart["placement"])])
        precisions = joined(list(dict.fromkeys(apart["precision"])))
        plain = table[(table["placement"] == "ddp") & (table["precision"] == "fp32") & (table["execution"] == "eager")]
        far = [
            (f"{names} in {precisions} do not", apart["leaves_at"].min()),
            ("rounding alone takes ddp in fp32", plain["leaves_at"].min()),
        ]
        by = [f"by step {step:.0f} of {apart['steps'].iloc[0]:.0f}" if not pd.isna(step) else "nowhere" for _, step in far]
        said.append(
            f"{panel}: {far[0][0]}, and lie {LEAVES:.2%} of the loss or more from it {by[0]}; {far[1][0]} that far {by[1]}."
            f"{_followed(same, str(panel), set(apart['placement']))}"
        )
    return said


def _followed(same: pd.DataFrame, panel: str, placements: set[str]) -> str:
    """Whether the same placements follow where the same job was trained at another rate."""
    job, found, _ = panel.partition(", rate ")
    others = same[same["panel"].str.startswith(job + ", rate ") & same["panel"].ne(panel) & same["placement"].isin(placements)]
    others = others[others["same"].notna()]
    if not found or others.empty or not others["same"].astype(bool).all():
        return ""
    return f" At a rate of {joined([f'{rate:g}' for rate in sorted(set(others['base_rate']))])} they all do."


def curve_table(seen: Seen) -> Shown:
    """Every run that is compared: distance, tolerance, last loss, accuracy."""
    rows = []
    for panel in dict.fromkeys(seen.same["panel"]):
        table = seen.same[seen.same["panel"] == panel]
        for placement in in_order(table["placement"]):
            for _, row in table[table["placement"] == placement].iterrows():
                same = "need not" if row["same"] is None or pd.isna(row["same"]) else "yes" if row["same"] else "no"
                rows.append(
                    {
                        "Job": panel,
                        "Placement": look(placement).label,
                        "Precision": row["precision"],
                        "Execution": row["execution"],
                        "Distance": f"{row['distance']:.1e}",
                        "Tolerance": f"{row['tolerance']:.1e}",
                        "Same curve": same,
                        "Last loss": f"{row['last_loss']:.4f}",
                        "Accuracy": percent(row["accuracy"]),
                    }
                )
    note = (
        f"Tolerance: {ALLOWED:g} times the drift of fp32, and in fp64, which rounds 2²⁹ times as finely, that much less. "
        "Accuracy: held-out images. Last loss: mean of the last tenth."
    )
    return tables_by(pd.DataFrame(rows), "Job", note, ["Distance", "Tolerance", "Last loss", "Accuracy"])


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
                        "Placement": look(placement).label + ("" if row["execution"] == "eager" else f", {row['execution']}"),
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


def claims_table(seen: Seen) -> Shown:
    """The claims that these Records decide."""
    return verdicts([evaluate(claim, seen.frame) for claim in all_claims() if isinstance(claim.predicate, TrainingPredicate)])
