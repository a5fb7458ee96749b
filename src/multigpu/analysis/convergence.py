"""Does a shared bucket cost convergence? TrainingRecords that differ in nothing but how sentences share a step, and the seed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd
from scipy import stats

from multigpu.analysis.training import scores_frame
from multigpu.training.record import TrainingRecord

RUN_COLUMNS = ("machine", "model", "inputs", "devices", "batch_size", "placement", "precision", "batching", "seed", "key")
JOB_COLUMNS = RUN_COLUMNS[:7]


def mode_runs(records: Iterable[TrainingRecord]) -> pd.DataFrame:
    """A row a finished run of a job that was trained in more than one mode of batching: RUN_COLUMNS."""
    rows = [
        (record.machine.name, *(getattr(record.training.run, name) for name in RUN_COLUMNS[1:-1]), record.key)
        for record in records
        if record.status == "ok" and record.training.run.workload == "nmt" and record.training.run.devices > 1
    ]
    frame = pd.DataFrame(rows, columns=list(RUN_COLUMNS))
    several = frame.groupby(list(JOB_COLUMNS))["batching"].transform("nunique") > 1 if len(frame) else pd.Series(dtype=bool)
    return frame[several.astype(bool)].reset_index(drop=True)


def mode_scores(records: Iterable[TrainingRecord]) -> pd.DataFrame:
    """Held-out scores of these runs: RUN_COLUMNS, step, epoch, samples, seconds, score, value."""
    known = list(records)
    return scores_frame(known).merge(mode_runs(known), on="key")


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

    @property
    def differs(self) -> bool:
        """Whether the interval lies on one side of none."""
        return self.low > 0 or self.high < 0


def differences(scores: pd.DataFrame, score: str = "loss") -> list[Difference]:
    """Every mode against own buckets at the last evaluation, paired by seed; of the job with most runs.

    Args:
        scores: of `mode_scores`.
    """
    own = scores[scores["score"] == score]
    if own.empty:
        return []
    job: Any = own.groupby(list(JOB_COLUMNS))["key"].nunique().idxmax()
    for name, value in zip(JOB_COLUMNS, job, strict=True):
        own = own[own[name] == value]
    last = own.sort_values("step").groupby(["batching", "seed"])["value"].last().unstack("batching")
    found = []
    for mode in (name for name in ("shared", "fixed") if name in last and "own" in last):
        pairs = (last[mode] - last["own"]).dropna()
        if len(pairs) < 2:
            found.append(Difference(score, mode, len(pairs), float(pairs.mean()), math.nan, math.nan, math.nan))
            continue
        test = stats.ttest_1samp(pairs, 0.0)
        low, high = test.confidence_interval(0.95)
        found.append(Difference(score, mode, len(pairs), float(pairs.mean()), float(low), float(high), float(test.pvalue)))
    return found
