"""SynchronyRecords and AveragingRecords as a tidy frame: a row a Record (two of averaging), every column named with its unit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from multigpu.analysis.statistics import mean_interval
from multigpu.analysis.words import MODELS
from multigpu.synchrony.averaging_record import AveragingRecord, AveragingStore
from multigpu.synchrony.curve import Point
from multigpu.synchrony.grid_training import MEMORY_PROBLEM
from multigpu.synchrony.laws import Law
from multigpu.synchrony.problems import LinearRegression, ProblemDescription
from multigpu.synchrony.rates import BoundedRate, RateRule
from multigpu.synchrony.record import RECORDS, SynchronyRecord, SynchronyStore
from multigpu.synchrony.theory import mean_staleness, update_time_s
from multigpu.synchrony.trained_models import TrainedModel

COLUMNS: dict[str, str] = {
    **dict.fromkeys(("key", "machine", "status", "reason", "clock", "engine", "server_device", "protocol", "start"), "string"),
    **dict.fromkeys(("law", "problem", "rate_rule"), "string"),
    **dict.fromkeys(("workers", "gradients_per_update", "repeat"), "int64"),
    **dict.fromkeys(("gradients", "budget_s", "rate"), "float64"),
    **dict.fromkeys(("mean_s", "update_time_s", "update_time_low_s", "update_time_high_s", "block_median_s", "theory_s"), "float64"),
    **dict.fromkeys(("gradient_time_s", "staleness", "staleness_of_n_k", "staleness_theory"), "float64"),
    **dict.fromkeys(("applied", "end_s", "loss_last", "error_last", "excess_early", "excess_last", "held_bytes"), "float64"),
    **dict.fromkeys(("measured_at", "commit"), "string"),
    "clean_tree": "bool",
    "attempt": "int64",
    "timing_version": "int64",
}
"""workers is P, gradients K as asked for (missing where the protocol fixes it), gradients_per_update K; budget_s a budget of time.
engine, server_device: of real runs alone.

mean_s: the law's mean. update_time_s: mean over the run, with a 95% t interval of its successive parts; block_median_s their median;
theory_s what theory says of it. gradient_time_s: seconds per gradient that was applied. staleness: mean, own update not counted;
staleness_of_n_k the same over P/K. applied: gradients in updates. loss_last, error_last: means over the last quarter of the curve.
excess_*: loss above the least there is, known for linear regression alone: at 5% of the budget, and over the last quarter.
"""
EARLY = 0.05


def synchrony_frame(root: Path | str | Iterable[SynchronyRecord | AveragingRecord] = RECORDS) -> pd.DataFrame:
    """The frame of all Records in a folder, or of those given.

    Raises:
        ValueError: a file is no such Record; the sentence names it.
    """
    found: Iterable[SynchronyRecord | AveragingRecord]
    found = [*SynchronyStore(Path(root)), *AveragingStore(Path(root))] if isinstance(root, Path | str) else root
    rows: list[dict[str, Any]] = []
    least: dict[LinearRegression, float] = {}
    for record in found:
        rows += _averaged(record) if isinstance(record, AveragingRecord) else [_row(record, least)]
    return pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()})


def law_name(law: Law) -> str:
    """The law's kind in words."""
    return law.kind.replace("_", " ")


NAMES = {"cnn": "images", "nmt": "translation"}


def problem_name(problem: ProblemDescription) -> str:
    """What tells problems apart, in words: "digits, hidden 64, batch 128"."""
    if isinstance(problem, TrainedModel):
        told = "" if problem.precision == "fp32" and problem.device == "cpu" else f", {problem.precision}"
        return f"{NAMES[problem.workload]} ({MODELS.get(problem.model, problem.model)}), batch {problem.batch_size}{told}"
    parts = [problem.kind.replace("_", " ")]
    hidden = getattr(problem, "hidden", ())
    parts += [f"hidden {' and '.join(map(str, hidden))}"] if hidden else []
    parts += [f"{problem.features} features"] if hasattr(problem, "features") else []
    parts += [f"batch {problem.batch_size}"]
    return ", ".join(parts)


def rate_of(rule: RateRule) -> float:
    """The rate of a fresh gradient, the most that a rule gives."""
    return rule.maximum if isinstance(rule, BoundedRate) else rule.rate


def _common(record: SynchronyRecord | AveragingRecord) -> dict[str, Any]:
    return {
        "key": record.key,
        "machine": record.machine.name,
        "measured_at": record.measured_at,
        "commit": record.commit,
        "clean_tree": record.clean_tree,
        "timing_version": record.synchrony_version,
    }


def _row(record: SynchronyRecord, least: dict[LinearRegression, float]) -> dict[str, Any]:
    e, result = record.experiment, record.result
    p, k = e.workers, e.gradients_per_update
    row = _common(record) | {
        # virtual seconds are the same on every machine
        "machine": record.place,
        "status": record.status,
        "reason": record.reason,
        "attempt": record.attempt,
        "clock": e.clock,
        "engine": e.engine if e.clock == "real" else None,
        "server_device": e.server_device if e.clock == "real" else None,
        "protocol": e.protocol,
        "law": law_name(e.law),
        "workers": p,
        "gradients": e.gradients,
        "gradients_per_update": k,
        "repeat": e.seed,
        "budget_s": e.time_s,
        "mean_s": e.law.mean_s,
        "theory_s": None if e.slowdown or e.delays_s or e.server_s else update_time_s(e.protocol, p, e.law, e.gradients),
        "staleness_theory": mean_staleness(e.protocol, p, e.gradients),
    }
    if e.problem is not None and e.rate is not None:
        row |= {"problem": problem_name(e.problem), "rate_rule": e.rate.kind, "rate": rate_of(e.rate)}
    if result is None:
        return row
    low, high = mean_interval(result.block_times_s)
    row |= {
        "update_time_s": result.update_time_s,
        "update_time_low_s": low,
        "update_time_high_s": high,
        "block_median_s": float(np.median(result.block_times_s)) if result.block_times_s else None,
        "gradient_time_s": result.update_time_s / k,
        "staleness": result.staleness.mean,
        "staleness_of_n_k": result.staleness.mean * k / p,
        "applied": result.gradients,
        "end_s": result.end_s,
        "held_bytes": result.held_bytes,
    }
    if result.curve:
        losses, errors = _last_quarter(result.curve)
        row |= {"loss_last": losses, "error_last": errors}
        if isinstance(e.problem, LinearRegression):
            if e.problem not in least:
                least[e.problem] = e.problem.build().best_loss
            row |= {"excess_last": losses - least[e.problem], "excess_early": _early(result.curve) - least[e.problem]}
    return row


def _last_quarter(curve: list[Point]) -> tuple[float, float | None]:
    last = curve[-max(1, len(curve) // 4) :]
    errors = [point.error for point in last if point.error is not None]
    return float(np.mean([point.loss for point in last])), float(np.mean(errors)) if errors else None


def _early(curve: list[Point]) -> float:
    end_s = curve[-1].time_s
    return next(point.loss for point in curve if point.time_s >= EARLY * end_s)


def _averaged(record: AveragingRecord) -> list[dict[str, Any]]:
    """One row for the average of the models, and one for the model trained jointly."""
    e = record.experiment
    rows = []
    for name, score in (("averaged", record.averaged), ("joint", record.joint)):
        rows.append(
            _common(record)
            | {
                "machine": "virtual",
                "status": "ok",
                "reason": "",
                "attempt": 0,
                "clock": "virtual",
                "protocol": name,
                "start": "same start" if e.same_start else "own start",
                "law": "none",
                "workers": e.workers,
                "gradients_per_update": e.workers,
                "repeat": e.seed,
                "problem": problem_name(e.problem),
                "rate_rule": "constant",
                "rate": e.rate,
                "applied": e.steps * e.workers,
                "loss_last": score.loss,
                "error_last": score.error,
            }
        )
    return rows


CURVE: tuple[str, ...] = (
    "key",
    "protocol",
    "clock",
    "workers",
    "gradients_per_update",
    "budget_s",
    "problem",
    "rate_rule",
    "rate",
    "repeat",
)
CURVE += ("time_s", "updates", "applied", "loss", "error")
"""Columns of `curves_frame`."""


def curves_frame(records: Iterable[SynchronyRecord]) -> pd.DataFrame:
    """A row a point of a curve: CURVE."""
    rows = [
        {
            "key": record.key,
            "protocol": record.experiment.protocol,
            "clock": record.experiment.clock,
            "workers": record.experiment.workers,
            "gradients_per_update": record.experiment.gradients_per_update,
            "budget_s": record.experiment.time_s,
            "problem": problem_name(record.experiment.problem),
            "rate_rule": record.experiment.rate.kind,
            "rate": rate_of(record.experiment.rate),
            "repeat": record.experiment.seed,
            "time_s": point.time_s,
            "updates": point.updates,
            "applied": point.gradients,
            "loss": point.loss,
            "error": point.error,
        }
        for record in records
        if record.result is not None and record.experiment.problem is not None and record.experiment.rate is not None
        for point in record.result.curve
    ]
    return pd.DataFrame(rows, columns=list(CURVE))


HELD = ("key", "protocol", "workers", "gradients_per_update", "held", "exchanged", "mib_held")
"""Columns of `memory_frame`."""


def memory_frame(records: Iterable[SynchronyRecord], parameters: int = 25_600_000) -> pd.DataFrame:
    """A row a run of the problem that is there for it.

    held: vectors in the server's memory at most: versions of the parameters that batches under way are computed on, and the K gradients of
    one update. exchanged: vectors received and sent for each gradient applied. mib_held: held, for a model of so many float32 parameters.
    """
    rows = []
    for record in records:
        e, result = record.experiment, record.result
        if e.problem != MEMORY_PROBLEM or result is None or e.clock != "virtual":
            continue
        held = result.accounts.versions_held + e.gradients_per_update
        rows.append(
            {
                "key": record.key,
                "protocol": e.protocol,
                "workers": e.workers,
                "gradients_per_update": e.gradients_per_update,
                "held": held,
                "exchanged": (result.accounts.received + result.accounts.sent) / result.accounts.applied,
                "mib_held": held * parameters * 4 / 2**20,
            }
        )
    return pd.DataFrame(rows, columns=list(HELD))


def ratio_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Time of sync over async under exponential times, where both have several seeds: workers, unit ("update" or "sample"), ratio with
    ratio_low and ratio_high (95%, Welch on logarithms), n, keys.
    """
    table = frame[(frame["status"] == "ok") & (frame["clock"] == "virtual") & frame["problem"].isna() & (frame["law"] == "exponential")]
    rows = []
    for workers in sorted({int(count) for count in table["workers"]}):
        group = table[table["workers"] == workers]
        sides = [group[group["protocol"] == name] for name in ("sync", "async")]
        n = min(map(len, sides))
        if n < 2:
            continue
        keys = ", ".join(key for side in sides for key in side["key"])
        for unit, column in (("update", "update_time_s"), ("sample", "gradient_time_s")):
            over, under = (np.log(side[column].to_numpy()) for side in sides)
            test = stats.ttest_ind(over, under, equal_var=False).confidence_interval()
            found = {"ratio": np.exp(over.mean() - under.mean()), "ratio_low": np.exp(test.low), "ratio_high": np.exp(test.high)}
            rows.append({"workers": workers, "unit": unit} | found | {"n": n, "keys": keys})
    return pd.DataFrame(rows, columns=["workers", "unit", "ratio", "ratio_low", "ratio_high", "n", "keys"])
