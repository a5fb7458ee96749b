"""SynchronyRecords and AveragingRecords as a tidy frame; curves, the server's memory, real runs
beside their prediction, large batches.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.frame import identity, typed_frame
from multigpu.analysis.points import where
from multigpu.analysis.statistics import combined, half_width, log_samples, mean_interval
from multigpu.analysis.words import MODELS
from multigpu.paths import SYNCHRONY
from multigpu_study.analysis.columns import columns
from multigpu_study.synchrony.averaging import AveragingRecord
from multigpu_study.synchrony.downpour import DownpourRecord
from multigpu_study.synchrony.experiment import BoundedRate, ProblemDescription, TrainedModel
from multigpu_study.synchrony.grid import read_grid
from multigpu_study.synchrony.problems import LinearRegression, RareFeatures
from multigpu_study.synchrony.record import Measured, SynchronyRecord
from multigpu_study.synchrony.server import CurvePoint
from multigpu_study.synchrony.store import SynchronyStore
from multigpu_study.synchrony.theory import mean_staleness, update_time_s

OF_EXPERIMENT = ("clock", "protocol", "workers", "gradients", "gradients_per_update")
COLUMNS = columns("synchrony")
"""A row a Record."""
EARLY = 0.05
_built = cache(LinearRegression.build)


def synchrony_frame(root: Path | str | Iterable[Measured[Any]] = SYNCHRONY) -> pd.DataFrame:
    """The frame of a folder's Records, or of those given. ValueError: names what is no Record."""
    found: Iterable[Measured[Any]] = (
        SynchronyStore(Path(root)) if isinstance(root, Path | str) else root
    )
    rows: list[dict[str, Any]] = []
    for record in found:
        if isinstance(record, AveragingRecord):
            rows += _averaged(record)
        elif isinstance(record, SynchronyRecord):
            rows.append(_row(record))
        elif isinstance(record, DownpourRecord) and isinstance(
            record.experiment.problem, RareFeatures
        ):
            rows.append(_by_feature(record, record.experiment.problem))
    return typed_frame(rows, COLUMNS)


def problem_name(problem: ProblemDescription) -> str:
    """Return a problem's name, which tells it from others: "digits, hidden 64, batch 128"."""
    if isinstance(problem, TrainedModel):
        if problem.precision == "fp32" and problem.device == "cpu":
            told = ""
        else:
            told = f", {problem.precision}"
        what = {"cnn": "images", "nmt": "translation"}[problem.workload]
        return (
            f"{what} ({MODELS.get(problem.model, problem.model)}), batch {problem.batch_size}{told}"
        )
    hidden = " and ".join(map(str, getattr(problem, "hidden", ())))
    features = f"{problem.features} features" if hasattr(problem, "features") else ""
    parts = (
        problem.kind.replace("_", " "),
        hidden and f"hidden {hidden}",
        features,
        f"batch {problem.batch_size}",
    )
    return ", ".join(filter(None, parts))


def _row(record: SynchronyRecord) -> dict[str, Any]:
    e, result = record.experiment, record.result
    p, k = e.workers, e.gradients_per_update
    row = identity(record) | e.values_of(*OF_EXPERIMENT)
    row |= {
        "machine": record.place,  # virtual seconds are the same on every machine
        "timing_version": record.synchrony_version,
        "law": e.law.kind.replace("_", " "),
        "repeat": e.seed,
        "budget_s": e.time_s,
        "mean_s": e.law.mean_s,
        "theory_s": (
            None
            if e.slowdown or e.delays_s or e.server_s
            else update_time_s(e.protocol, p, e.law, e.gradients)
        ),
        "staleness_theory": mean_staleness(e.protocol, p, e.gradients),
    }
    if e.clock == "real":
        row |= {"engine": e.engine, "server_device": e.server_device}
    if e.problem is not None and e.rate is not None:
        # the most that a rule gives
        fresh = e.rate.maximum if isinstance(e.rate, BoundedRate) else e.rate.rate
        row |= {"problem": problem_name(e.problem), "rate_rule": e.rate.kind, "rate": fresh}
    if result is None:
        return row
    low_s, high_s = mean_interval(result.block_times_s)
    row |= {"update_time_low_s": low_s, "update_time_high_s": high_s}
    row["update_time_s"] = result.update_time_s
    row["gradient_time_s"] = result.update_time_s / k
    row["end_s"] = result.end_s
    row["staleness"] = result.staleness.mean
    row["staleness_of_n_k"] = result.staleness.mean * k / p
    row["applied"] = result.gradients
    if curve := result.curve:
        row |= _ends(curve)
        if isinstance(e.problem, LinearRegression):
            least = _built(e.problem).best_loss
            early = next(point.loss for point in curve if point.time_s >= EARLY * curve[-1].time_s)
            row |= {"excess_last": row["loss_last"] - least, "excess_early": early - least}
    return row


def _ends(curve: Sequence[CurvePoint]) -> dict[str, float | None]:
    last = curve[-max(1, len(curve) // 4) :]
    errors = [point.error for point in last if point.error is not None]
    return {
        "loss_last": float(np.mean([point.loss for point in last])),
        "error_last": fmean(errors) if errors else None,
    }


def _trained(record: AveragingRecord | DownpourRecord, **own: Any) -> dict[str, Any]:
    """A row of what is none of the six protocols."""
    e = record.experiment
    usual = {
        "machine": "virtual",
        "status": "ok",
        "reason": "",
        "attempt": 0,
        "clock": "virtual",
        "law": "none",
        "rate_rule": "constant",
    }
    said = {
        "timing_version": record.synchrony_version,
        "repeat": e.seed,
        "problem": problem_name(e.problem),
        "rate": e.rate,
    }
    return identity(record) | usual | said | own


def _by_feature(record: DownpourRecord, problem: RareFeatures) -> dict[str, Any]:
    """A run of Downpour whose features are read apart."""
    e = record.experiment
    read = _built(problem).of_rare(np.array(record.parameters), np.array(record.rates))
    own = {
        "protocol": "downpour",
        "workers": e.replicas,
        "gradients_per_update": 1,
        "applied": record.applied,
    }
    rule = {"sgd": "constant"}.get(e.rule, e.rule)
    return _trained(record, rate_rule=rule, **own, **_ends(record.curve), **read)


def _averaged(record: AveragingRecord) -> list[dict[str, Any]]:
    """One row for the average of the models, and one for the model trained jointly."""
    e = record.experiment
    own = {"workers": e.workers, "gradients_per_update": e.workers, "applied": e.steps * e.workers}
    row = _trained(record, start="same start" if e.same_start else "own start", **own)
    scores = {"averaged": record.averaged, "joint": record.joint}
    return [
        row | {"protocol": name, "loss_last": score.loss, "error_last": score.error}
        for name, score in scores.items()
    ]


def curves_frame(records: Iterable[SynchronyRecord]) -> pd.DataFrame:
    """A row a point of a curve: key, protocol, clock, time_s, updates, applied, loss, error."""
    told = ("time_s", "updates", "gradients", "loss", "error")
    rows = [
        (record.key, e.protocol, e.clock, *(getattr(point, name) for name in told))
        for record in records
        if (e := record.experiment) and record.result is not None
        for point in record.result.curve
    ]
    return pd.DataFrame(
        rows, columns=["key", "protocol", "clock", "time_s", "updates", "applied", "loss", "error"]
    )


def memory_frame(records: Iterable[SynchronyRecord]) -> pd.DataFrame:
    """A row a run of the grid that is there for it: key, protocol, workers, gradients_per_update,
    held, exchanged.
    held: vectors in the server's memory at most: versions of the parameters that batches under way
        are computed on, and the K gradients of one update. exchanged: vectors received and sent for
        each gradient applied.
    """
    asked = {entry.run for entry in read_grid("memory")}
    rows = [
        (
            record.key,
            e.protocol,
            e.workers,
            k := e.gradients_per_update,
            own.versions_held + k,
            (own.received + own.sent) / own.applied,
        )
        for record in records
        if (e := record.experiment) in asked and record.result is not None
        for own in [record.result.accounts]
    ]
    return pd.DataFrame(
        rows, columns=["key", "protocol", "workers", "gradients_per_update", "held", "exchanged"]
    )


def ratio_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Time of sync over async under exponential times, where both have several seeds, of an update
    and of a sample; Welch on logarithms.
    """
    alike = {"law": "exponential", "protocol": ["sync", "async"]}
    known = where(frame, status="ok", clock="virtual", problem=None, **alike)
    rows = []
    for workers, own in known.groupby("workers"):
        count = own["protocol"].value_counts().reindex(["sync", "async"], fill_value=0)
        if min(count) < 2:
            continue
        for unit, column in (("update", "update_time_s"), ("sample", "gradient_time_s")):
            each = log_samples(own[column], own["protocol"], own["key"])
            over, under = (
                each.loc[[name]]
                .reset_index(drop=True)
                .assign(rate=math.exp(each["log_mean"][name]))
                for name in count.index
            )
            ratio, variance, freedom = combined([over], [under]).iloc[0]
            half = math.exp(half_width(variance, freedom))
            interval = ratio / half, ratio * half
            rows.append((workers, unit, ratio, *interval, min(count), ", ".join(own["key"])))
    return pd.DataFrame(
        rows, columns=["workers", "unit", "ratio", "ratio_low", "ratio_high", "n", "keys"]
    )
