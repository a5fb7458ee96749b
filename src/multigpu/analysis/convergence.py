"""Does a shared bucket cost convergence? TrainingRecords that differ in nothing but how sentences share a step, and the seed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd
from scipy import stats

from multigpu.analysis.statistics import mean_interval
from multigpu.analysis.training import scores_frame
from multigpu.training.record import TrainingRecord

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
