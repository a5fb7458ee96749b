"""TrainingRecords as tidy frames: a row a run, a row a point of a curve, a row an evaluation; how far apart curves lie, and whether
sharing a bucket costs convergence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from multigpu.analysis.frame import typed_frame
from multigpu.analysis.statistics import mean_interval
from multigpu.analysis.words import MODELS, plural
from multigpu.training.record import TrainingMeasurement, TrainingRecord, TrainingStore

OF_RECORD = ("key", "attempt", "repeat", "status", "reason", "input_label", "measured_at", "commit", "clean_tree", "training_version")
OF_RUN = (
    *("workload", "model", "placement", "device_type", "scaling", "inputs", "layout", "precision", "execution", "optimizer", "framework"),
    *("processes", "devices", "batch_size", "seed"),
)
WHOLE = ("attempt", "repeat", "devices", "batch_size", "joined_batch", "multiple", "seed", "training_version")
NUMBERS = (
    *("steps", "steps_per_epoch", "epochs", "base_rate", "peak_rate", "samples", "first_loss", "last_loss", "test_loss", "accuracy"),
    *("best_accuracy", "bleu", "train_s", "step_time_s", "units_per_s", "energy_j", "energy_s", "resumed"),
)
TEXTS = ("machine", "gpu", "unit", "semantics", "rate_scaling", "schedule", "why", "framework_version", "launch_id", "flags")
COLUMNS: dict[str, str] = (
    dict.fromkeys((*OF_RECORD, *OF_RUN, *TEXTS), "string")
    | dict.fromkeys(WHOLE, "int64")
    | dict.fromkeys(NUMBERS, "float64")
    | dict.fromkeys(("adjusted", "diverged", "clean_tree"), "bool")
)
"""A row a Record. multiple: the joined batch over the reference batch, at least 1. last_loss: mean over the last tenth of the points.
accuracy, bleu, test_loss: of the last evaluation; best_accuracy: of all. energy_j: of all GPUs together; energy_s: the seconds in which
they took it, evaluations and checkpoints included (NaN for what was resumed: its energy is of the last process alone)."""


def training_records(folder: Path | str) -> list[TrainingRecord]:
    """Every Record in a folder.

    Raises:
        ValueError: a file is no TrainingRecord; the sentence names it.
    """
    return list(TrainingStore(Path(folder)))


def training_frame(records: Iterable[TrainingRecord]) -> pd.DataFrame:
    """The frame of these Records."""
    return typed_frame([_row(record) for record in records], COLUMNS)


def _row(record: TrainingRecord) -> dict[str, Any]:
    training, run, m = record.training, record.training.run, record.measurement
    row = {name: getattr(record, name) for name in OF_RECORD} | {name: getattr(run, name) for name in OF_RUN}
    row |= {
        "machine": record.machine.name,
        "gpu": record.machine.gpus[0] if record.machine.gpus else "",
        "unit": run.description.unit,
        "semantics": run.semantics.kind,
        "framework_version": record.versions.get("torch", "none"),
        # every seed starts anew: a launch of its own as far as accuracy goes
        "launch_id": f"{record.launch_id}, seed {run.seed}",
        "rate_scaling": training.rate_scaling,
        "schedule": training.schedule,
        "adjusted": training.adjust_to_devices,
        "joined_batch": training.joined_batch,
        "multiple": max(1, training.joined_batch // training.reference_batch),
        "base_rate": training.base,
        "peak_rate": training.schedule_of(m.steps_per_epoch or 1 if m else 1).peak,
        "epochs": training.epochs,
        "diverged": bool(m and any("diverged" in flag for flag in m.flags)),
        "flags": ", ".join(m.flags) if m else "",
    }
    if m:
        row |= {name: getattr(m, name) for name in ("steps", "steps_per_epoch", "samples", "train_s")}
        row |= {
            "epochs": training.epochs or _epoch(m, m.steps),
            "first_loss": m.loss[0],
            "last_loss": float(np.mean(m.loss[-max(1, len(m.loss) // 10) :])),
            "test_loss": m.final("loss"),
            "accuracy": m.final("accuracy"),
            "best_accuracy": m.best("accuracy"),
            "bleu": m.final("bleu"),
            "step_time_s": m.train_s / m.steps,
            "units_per_s": m.units / m.train_s,
            "energy_j": sum(m.energy_j) if m.energy_j else None,
            "energy_s": None if m.resumed_at else m.train_s + m.evaluation_s + m.checkpoint_s,
            "resumed": len(m.resumed_at),
        }
    return row


def _epoch(m: TrainingMeasurement, step: int) -> float:
    return step / m.steps_per_epoch if m.steps_per_epoch else math.nan


def _measured(records: Iterable[TrainingRecord]) -> Iterator[tuple[TrainingRecord, TrainingMeasurement]]:
    for record in records:
        if record.measurement is not None:
            yield record, record.measurement


def curves_frame(records: Iterable[TrainingRecord]) -> pd.DataFrame:
    """Loss at every point of every run: key, step (the last of the point), epoch, seconds, loss, rate."""
    rows = [
        (record.key, step := min((index + 1) * record.training.log_every, m.steps), _epoch(m, step), seconds, loss, rate)
        for record, m in _measured(records)
        for index, (loss, seconds, rate) in enumerate(zip(m.loss, m.seconds, m.rate, strict=True))
    ]
    return pd.DataFrame(rows, columns=["key", "step", "epoch", "seconds", "loss", "rate"])


def scores_frame(records: Iterable[TrainingRecord]) -> pd.DataFrame:
    """Every evaluation: key, step, epoch, samples, seconds, score (its name), value."""
    rows = [
        (record.key, e.step, _epoch(m, e.step), e.samples, e.seconds, name, value)
        for record, m in _measured(records)
        for e in m.evaluations
        for name, value in e.scores.items()
    ]
    return pd.DataFrame(rows, columns=["key", "step", "epoch", "samples", "seconds", "score", "value"])


def reach_frame(records: Iterable[TrainingRecord], levels: Sequence[float], score: str = "accuracy") -> pd.DataFrame:
    """What each run took to a score: key, level, and steps, epochs, samples, seconds at the first evaluation there (NaN: none)."""
    rows: list[tuple[Any, ...]] = []
    for record, m in _measured(records):
        for level in levels if m.final(score) is not None else ():
            e = m.reached(score, level)
            rows.append((record.key, level, *((e.step, _epoch(m, e.step), e.samples, e.seconds) if e else [math.nan] * 4)))
    return pd.DataFrame(rows, columns=["key", "level", "steps", "epochs", "samples", "seconds"])


# --- whether curves are the same ------------------------------------------------------------------------------------------------

WINDOW = 10
"""Points that are averaged before curves are compared: what one batch does is noise that all runs share."""

ALLOWED = 3.0
"""A placement may lie so many times as far from the fp64 curve as fp32's own rounding led the reference placement."""

ROUNDING = {"fp64": 2.0**-29, "fp32": 1.0}
"""How large an error of rounding is in a precision, over fp32's (53 bits of fraction against 24)."""

PANEL = (
    *("machine", "workload", "model", "inputs", "input_label", "devices", "batch_size", "scaling", "seed"),
    *("base_rate", "rate_scaling", "schedule", "epochs"),
)
"""What runs share whose curves are compared."""


def curve_distance(loss: Sequence[float] | np.ndarray, reference: Sequence[float] | np.ndarray) -> float:
    """The largest relative difference of means over successive windows (the last may be shorter); inf where the lengths differ."""
    if len(loss) != len(reference):
        return math.inf
    ours, theirs = (np.array([np.mean(curve[at : at + WINDOW]) for at in range(0, len(curve), WINDOW)]) for curve in (loss, reference))
    return float(np.max(np.abs(ours - theirs) / np.abs(theirs)))


def same_curve_table(frame: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """Joined placements beside the reference, where fp64 says what no rounding would give.

    A panel is what runs share apart from placement, precision and execution, without staged ones. Its truth is ddp in fp64, or where there
    is none (GPUs) in fp32. Its drift is how far ddp in fp32 lies from the truth, or where fp32 is the truth, the median distance of all.
    tolerance = ALLOWED x drift x ROUNDING: fp64 is held to what rounding can do there, 2^-29 of what it did in fp32.

    Returns columns: panel, key, machine, placement, processes, devices, precision, execution, semantics, seed, base_rate, role, distance,
    drift, tolerance, replicas, same. A panel is named by its rate where another differs from it in the rate alone.

    role: "reference" (the truth beside itself), "yardstick" (the run whose distance is the drift: it cannot miss three times that),
        "compared", or "free" (need not follow). replicas: the distance of independent replicas (NaN: none were trained).
    same: of what is compared. None: nothing is told, as it lies within a tolerance that independent replicas would keep too, or of which
        no replicas show what it can tell; and of all else.
    """
    own = ["key", "machine", "placement", "processes", "devices", "precision", "execution", "semantics", "seed", "base_rate"]
    plain = frame["status"].eq("ok") & frame["schedule"].eq("constant") & frame["rate_scaling"].eq("none")
    losses: dict[Any, np.ndarray] = {key: group["loss"].to_numpy() for key, group in curves.groupby("key")}
    tables = [pd.DataFrame(columns=["panel", *own, "role", "distance", "drift", "tolerance", "replicas", "same"])]
    for _, panel in frame[plain & frame["semantics"].ne("stale")].groupby(list(PANEL), sort=False, dropna=False):
        keys = panel[panel["placement"].eq("ddp") & panel["execution"].eq("eager")].set_index("precision")["key"].to_dict()
        if panel["placement"].nunique() < 2 or not keys:
            continue
        truth = "fp64" if "fp64" in keys else next(iter(keys))
        yardstick = keys.get("fp32") if truth == "fp64" else None
        distance = panel["key"].map({key: curve_distance(losses[key], losses[keys[truth]]) for key in panel["key"]})
        joined = panel["semantics"].eq("joined")
        moved = distance[joined & panel["precision"].eq("fp32") & distance.gt(0)]
        drift = float(distance[panel["key"].eq(yardstick)].iloc[0]) if yardstick else float(moved.median()) if len(moved) else 0.0
        tolerance = ALLOWED * drift * panel["precision"].map(ROUNDING).fillna(1.0).astype("float64")
        replicas = distance[panel["semantics"].eq("independent")].min()
        held = joined & panel["precision"].isin(list(ROUNDING))
        role = np.select(
            [panel["key"].eq(keys[truth]), panel["key"].eq(yardstick or ""), held], ["reference", "yardstick", "compared"], "free"
        )
        told = (role == "compared") & ((distance > tolerance) | (replicas > tolerance))
        same = distance.le(tolerance).astype(object).where(told, None)
        first = panel.iloc[0]
        name = f"{MODELS.get(first['model'], first['model'])} on {first['inputs']}, {plural(int(first['devices']), 'device')}"
        found = {"role": role, "distance": distance, "drift": drift, "tolerance": tolerance, "replicas": replicas, "same": same}
        tables.append(panel[own].assign(panel=name, **found))
    table = pd.concat(tables[1:] or tables)[tables[0].columns]
    order = table["panel"].map({name: place for place, name in enumerate(dict.fromkeys(table["panel"]))})
    table = table.assign(order=order).sort_values(["order", "base_rate"], kind="stable", ignore_index=True).drop(columns="order")
    several = table.groupby("panel")["base_rate"].transform("nunique") > 1
    table.loc[several, "panel"] = [f"{name}, rate {rate:g}" for name, rate in table.loc[several, ["panel", "base_rate"]].to_numpy()]
    return table


# --- whether batching modes are ---------------------------------------------------------------------------------------------------

JOB_COLUMNS = ["machine", "model", "inputs", "devices", "batch_size", "placement", "precision"]


def mode_scores(records: Iterable[TrainingRecord]) -> pd.DataFrame:
    """Held-out scores (`training.scores_frame`) of finished runs of a job that was trained in more than one mode of batching, with
    `JOB_COLUMNS`, batching and seed.
    """
    known = list(records)
    names = [*JOB_COLUMNS[1:], "batching", "seed"]
    rows = [
        (record.key, record.machine.name, *(getattr(record.training.run, name) for name in names))
        for record in known
        if record.status == "ok" and record.training.run.workload == "nmt" and record.training.run.devices > 1
    ]
    frame = pd.DataFrame(rows, columns=["key", "machine", *names])
    return scores_frame(known).merge(frame[frame.groupby(JOB_COLUMNS)["batching"].transform("nunique") > 1], on="key")


class Difference(NamedTuple):
    """Mean over seeds of (a score in `mode` - the same seed's with own buckets), with its 95% interval by Student's t (NaN: one seed).

    pairs: seeds that have both. p: two-sided.
    """

    score: str
    mode: str
    pairs: int
    mean: float
    low: float
    high: float
    p: float


def differences(scores: pd.DataFrame, score: str = "loss") -> list[Difference]:
    """Every mode against own buckets at the last evaluation, paired by seed; of the job with most runs.

    Args:
        scores: of `mode_scores`.
    """
    own = scores[scores["score"] == score]
    if own.empty:
        return []
    job: Any = own.groupby(JOB_COLUMNS)["key"].nunique().idxmax()
    own = own.set_index(JOB_COLUMNS).loc[[job]]
    last = own.sort_values("step").groupby(["batching", "seed"])["value"].last().unstack("batching")
    found = []
    for mode in (name for name in ("shared", "fixed") if name in last and "own" in last):
        pairs = (last[mode] - last["own"]).dropna()
        p = float(stats.ttest_1samp(pairs, 0.0).pvalue) if len(pairs) > 1 else float("nan")
        found.append(Difference(score, mode, len(pairs), float(pairs.mean()), *mean_interval(pairs), p))
    return found
