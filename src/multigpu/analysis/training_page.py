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
    shape_text,
    training_frame,
    training_records,
)
from multigpu.analysis.wording import joined, plural
from multigpu.conditions import LEAST_ENERGY_S
from multigpu.parameters import Measure
from multigpu.placements import find_placement
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


def answer(seen: Seen) -> Shown:
    """A few sentences, each only where Records support it."""
    sentences = [*_curves(seen.same), *_rules(seen.frame)]
    text = sentences or ["No Record supports an answer yet: `python -m multigpu train` trains the default grid."]
    return paragraphs(*text)


def exceptions(seen: Seen) -> Shown:
    """Which runs the comparison of curves does not count, and which miss their tolerance; nothing where all follow."""
    return paragraphs(*_uncounted(seen.same[seen.same["role"] == "compared"]), *_leaving(seen.same), kind="said")


def _curves(same: pd.DataFrame) -> list[str]:
    """The comparison that tells most, then all of them."""
    compared, judged = same[same["role"] == "compared"], same[same["same"].notna()]
    if judged.empty:
        return []
    panels = compared.groupby("panel", sort=False)
    telling = (panels["replicas"].min() / panels["tolerance"].max()).fillna(0.0)[list(dict.fromkeys(judged["panel"]))]
    first = judged[judged["panel"] == telling.idxmax()]
    others = first.loc[first["placement"] != "ddp", "placement"].nunique()
    whole = len(judged) == int(judged["same"].sum())
    sentences = [
        f"{telling.idxmax()}: {_share(first)} joined {'run' if len(first) == 1 else 'runs'} compared with ddp "
        f"({plural(others, 'other placement')}, {joined(sorted(set(first['precision'])))}) "
        f"{'follows' if int(first['same'].sum()) == 1 else 'follow'} its loss curve to the last of {first['steps'].iloc[0]:,.0f} steps, "
        f"within {ALLOWED:g} times what rounding alone does{_in_fp64(first[first['same'].astype(bool)])}."
        f"{_away(telling.max())}{' Where parts live changes the time and not the result.' if whole else ''}"
    ]
    if judged["panel"].nunique() > 1:
        least = (judged["replicas"] / judged["tolerance"]).min()
        sentences.append(f"Of all comparisons together {_share(judged)} runs follow their reference so.{_away(least, 'least ')}")
    return sentences


def _share(judged: pd.DataFrame) -> str:
    same = int(judged["same"].sum())
    return f"all {same}" if same == len(judged) else f"{same} of {len(judged)}"


def _away(times: float, most: str = "") -> str:
    """How far beyond the tolerance independent replicas lie; nothing where there are none."""
    if not math.isfinite(times) or times <= 1:
        return ""
    return f" Independent replicas lie at {most}{float(f'{times:.2g}'):,g} times the tolerance."


def _uncounted(compared: pd.DataFrame) -> list[str]:
    """Runs that lie within a tolerance that tells nothing, by panel and precision, with the reason."""
    rows: Any = compared[compared["same"].isna()].groupby(["panel", "precision"], sort=False)
    said = [
        f"{plural(len(table), 'run')} in {precision} of {panel}, since "
        + ("no independent replicas were trained there" if table["replicas"].isna().all() else f"{NOT_TOLD.removesuffix(' here')} there")
        for (panel, precision), table in rows
    ]
    return [f"Not counted: {'; '.join(said)}."] if said else []


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
    """Of each job with runs that do not follow: which, from which step on, from which step fp32's rounding parts ddp from itself, and
    what the runs have in common as far as Records tell.
    """
    said = []
    for panel, table in same.groupby("panel", sort=False):
        apart = table[table["same"].eq(False)]
        if apart.empty:
            continue
        names = joined([look(name).label for name in in_order(apart["placement"])])
        precisions = joined(list(dict.fromkeys(apart["precision"])))
        plain = table[(table["placement"] == "ddp") & (table["precision"] == "fp32") & (table["execution"] == "eager")]
        far = [
            (f"{names} in {precisions} {'does' if len(apart) == 1 else 'do'} not follow", apart["leaves_at"].min()),
            ("rounding alone takes ddp in fp32", plain["leaves_at"].min()),
        ]
        by = [f"by step {step:.0f} of {apart['steps'].iloc[0]:.0f}" if not pd.isna(step) else "nowhere" for _, step in far]
        said.append(
            f"{panel}: {far[0][0]}, and {'lies' if len(apart) == 1 else 'lie'} {LEAVES:.2%} of the loss or more from it {by[0]}; "
            f"{far[1][0]} that far {by[1]}.{_followed(same, str(panel), set(apart['placement']))}"
            f"{_from_digits(apart, plain)}{_with_rows(table, apart)}"
        )
    return said


def _from_digits(apart: pd.DataFrame, plain: pd.DataFrame) -> str:
    """Where the first digit differs: late, it speaks for rounding; nothing where it is at once, or where ddp in fp32 shows no drift."""
    first, drifts = apart["differs_at"].min(), plain["differs_at"].min()
    if pd.isna(first) or pd.isna(drifts) or first <= drifts:
        return ""
    return (
        f" Before step {first:.0f} every digit that a Record keeps is equal, as ddp's are in fp32 before step {drifts:.0f}: what parts "
        "them begins below those digits, as rounding does, and grows."
    )


def _with_rows(table: pd.DataFrame, apart: pd.DataFrame) -> str:
    """Whether those that miss are just those that send rows of tables, while all with copies of the tables equal the reference."""
    beside = table[(table["role"] == "compared") & table["precision"].isin(set(apart["precision"]))]
    rows = {name for name in beside["placement"] if find_placement(str(name)).travels == "rows"}
    kept = beside[~beside["placement"].isin(rows)]
    if rows != set(apart["placement"]) or kept.empty or kept["distance"].max() > 0:
        return ""
    count = kept["placement"].nunique()
    who = "It is the one placement that sends" if len(rows) == 1 else f"They are the {len(rows)} placements that send"
    return (
        f" {who} rows of the tables; the {plural(count, 'other')} with copies of the tables {'equals' if count == 1 else 'equal'} the "
        "reference in every digit."
    )


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
