"""TrainingRecords as tidy frames; how far apart curves lie, and whether sharing a bucket costs
convergence.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.frame import identity, typed_frame
from multigpu.placements.resolve import semantics_of
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from multigpu_study.analysis.columns import columns
from multigpu_study.analysis.points import averages
from multigpu_study.training.record import TrainingMeasurement, TrainingRecord
from multigpu_study.training.schedule import base_rate_of, global_batch

COLUMNS = columns("training")
"""A row a Record."""
OF_RUN = [name for name in COLUMNS if name in Run.model_fields]
OF_TRAINING = ("rate_scaling", "schedule")
MEASURED = ("steps", "steps_per_epoch", "samples", "train_s")


def training_frame(records: Iterable[TrainingRecord]) -> pd.DataFrame:
    """The frame of these Records."""
    return typed_frame([_row(record) for record in records], COLUMNS)


def _row(record: TrainingRecord) -> dict[str, Any]:
    training, run, m = record.training, record.training.run, record.measurement
    row = run.values_of(*OF_RUN) | training.values_of(*OF_TRAINING) | identity(record)
    row |= {
        "unit": description_of(run).unit,
        "semantics": semantics_of(run).kind,
        "framework_version": record.versions.get("torch", "none"),
        "training_version": record.training_version,
        # every seed starts anew: a launch of its own as far as accuracy goes
        "launch_id": f"{record.launch_id}, seed {run.seed}",
        "adjusted": training.adjust_to_devices,
        "global_batch": global_batch(training),
        "multiple": max(1, global_batch(training) // training.reference_batch),
        "base_rate": base_rate_of(training),
        "epochs": training.epochs,
        "diverged": bool(m and any("diverged" in flag for flag in m.flags)),
    }
    if m:
        row |= {name: getattr(m, name) for name in MEASURED} | {
            name: m.final(name) for name in ("accuracy", "bleu")
        }
        row["step_time_s"] = m.train_s / m.steps
        row["units_per_s"] = m.units / m.train_s
        row["flags"] = ", ".join(m.flags)
        row["epochs"] = training.epochs or _epoch(m, m.steps)
        row["last_loss"] = float(np.mean(m.loss[-max(1, len(m.loss) // 10) :]))
    return row


def _epoch(m: TrainingMeasurement, step: int) -> float:
    return step / m.steps_per_epoch if m.steps_per_epoch else math.nan


def _measured(
    records: Iterable[TrainingRecord],
) -> Iterator[tuple[TrainingRecord, TrainingMeasurement]]:
    for record in records:
        if record.measurement is not None:
            yield record, record.measurement


def curves_frame(records: Iterable[TrainingRecord]) -> pd.DataFrame:
    """Every point of every run: key, step (the point's last), epoch, seconds, loss, rate."""
    rows = [
        (
            record.key,
            step := min((index + 1) * record.training.log_every, m.steps),
            _epoch(m, step),
            seconds,
            loss,
            rate,
        )
        for record, m in _measured(records)
        for index, (loss, seconds, rate) in enumerate(zip(m.loss, m.seconds, m.rate, strict=True))
    ]
    return pd.DataFrame(rows, columns=["key", "step", "epoch", "seconds", "loss", "rate"])


def reach_frame(records: Iterable[TrainingRecord], levels: Sequence[float]) -> pd.DataFrame:
    """Return the cost of each training run up to an accuracy: key, level, and steps, epochs,
    samples, seconds at the first evaluation there (NaN: none).
    """
    rows: list[tuple[Any, ...]] = []
    for record, m in _measured(records):
        for level in levels if m.final("accuracy") is not None else ():
            e = m.reached("accuracy", level)
            ends = (e.step, _epoch(m, e.step), e.samples, e.seconds) if e else (math.nan,) * 4
            rows.append((record.key, level, *ends))
    return pd.DataFrame(rows, columns=["key", "level", "steps", "epochs", "samples", "seconds"])


# --- whether curves are the same


# --- whether batching modes are

JOB = ["machine", "model", "inputs", "devices", "batch_size", "placement", "precision"]


def differences(records: Iterable[TrainingRecord]) -> pd.DataFrame:
    """Of finished translators whose job was trained in more than one mode of batching, every other
    mode against own buckets at the last evaluation, paired by seed; of each score's job with most
    runs: score, batching, difference with _low and _high (95%, t), n, keys.
    """
    names = [*JOB[1:], "batching", "seed"]
    rows = [
        (
            record.key,
            record.machine.name,
            *(getattr(run, name) for name in names),
            e.step,
            score,
            value,
        )
        for record, m in _measured(records)
        if record.status == "ok"
        and (run := record.training.run).workload == "nmt"
        and run.devices > 1
        for e in m.evaluations
        for score, value in e.scores.items()
    ]
    frame = pd.DataFrame(rows, columns=["key", "machine", *names, "step", "score", "value"])
    scores = frame[frame.groupby(JOB)["batching"].transform("nunique") > 1]
    runs = scores.groupby(["score", *JOB])["key"].nunique()
    jobs = runs.groupby("score").idxmax().tolist()
    last = scores[scores.set_index(runs.index.names).index.isin(jobs)].sort_values("step")
    last = last.groupby(["score", "batching", "seed"])[["value", "key"]].last().reset_index()
    pairs = last[last["batching"].ne("own")].merge(
        last[last["batching"].eq("own")], on=["score", "seed"], suffixes=("", "_own")
    )
    return averages(
        pairs.assign(difference=pairs["value"] - pairs["value_own"]),
        ["score", "batching"],
        ["difference"],
    )
