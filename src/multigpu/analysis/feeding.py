"""What feeding costs: how long steps waited for their batch, and where more workers stop to help."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from multigpu.conditions import ON_DEVICE
from multigpu.record import Record

LEVEL = 0.95
"""A last point at this share of the rising line or above may as well still rise."""


def waited_s(record: Record) -> float:
    """Host time a step until it had its batch, s: mean over the second half of the timed steps, of the replica that waited most; 0
    where batches stay on the device, NaN where waits were not recorded.
    """
    run, m = record.run, record.measurement
    if run.inputs in ON_DEVICE:
        return 0.0
    if m is None or not m.input_wait_s:
        return math.nan
    half, end = run.warmup_steps + run.timed_steps // 2, run.warmup_steps + run.timed_steps
    return float(np.array(m.input_wait_s)[:, half:end].mean(axis=1).max())


def with_waits(points: pd.DataFrame, records: Iterable[Record]) -> pd.DataFrame:
    """The points with wait_s: the mean of `waited_s` over their Records (NaN where none recorded its waits)."""
    known = {record.key: waited_s(record) for record in records if record.status == "ok"}
    waits = points["keys"].str.split(", ").explode().map(known).astype("float64")
    return points.assign(wait_s=waits.groupby(level=0).mean())


class Knee(NamedTuple):
    """rate(w) = min(per_worker x w, ceiling): below `workers` = ceiling / per_worker the workers decide, above it something else."""

    per_worker: float
    ceiling: float
    workers: float


def knee(workers: Sequence[int], rates: Sequence[float]) -> Knee:
    """The knee of rates over workers, by least squares of logarithms over every split into rising and level points.

    Where no point is level, `ceiling` is infinite: the host's limit lies beyond the workers that were tried.

    Raises:
        ValueError: fewer than two points, or a number that is not positive.
    """
    w, r = (np.asarray(values, dtype=float) for values in (workers, rates))
    if len(w) < 2 or not ((w > 0).all() and (r > 0).all()):
        raise ValueError(f"a knee needs at least two positive points: there are {len(w)}")
    order = np.argsort(w)
    w, r = np.log(w[order]), np.log(r[order])
    best, found = math.inf, Knee(math.nan, math.inf, math.inf)
    for rising in range(1, len(w) + 1):
        slope = float((r[:rising] - w[:rising]).mean())
        level = float(r[rising:].mean()) if rising < len(w) else math.inf
        error = float(((np.minimum(slope + w, level) - r) ** 2).sum())
        if error < best * (1 - 1e-9):
            best, found = error, Knee(math.exp(slope), math.exp(level), math.exp(level - slope))
    if found.workers > LEVEL * math.exp(w[-1]):  # the last point alone is hardly below the line: it may as well still rise
        return Knee(math.exp(float((r - w).mean())), math.inf, math.inf)
    return found
