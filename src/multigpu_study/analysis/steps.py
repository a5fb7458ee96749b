"""Summarise Records step by step: what more input workers bring, where warm-up ended, whether a
faster Run trained as the plain one did.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pandas as pd

from multigpu.analysis.steps import waited_s
from multigpu.placements import find_placement
from multigpu.records.record import Record
from multigpu_study.analysis.columns import columns

LEVEL = 0.95
"""A last point at this share of the rising line or above may as well still rise."""


def with_waits(points: pd.DataFrame, records: Iterable[Record]) -> pd.DataFrame:
    """The points with wait_s: the mean of `waited_s` over their Records (NaN where none recorded
    its waits).
    """
    known = {record.key: waited_s(record) for record in records if record.status == "ok"}
    waits = points["keys"].str.split(", ").explode().map(known).astype("float64")
    return points.assign(wait_s=waits.groupby(level=0).mean())


class Knee(NamedTuple):
    """rate(w) = min(per_worker x w, ceiling): below `workers` = ceiling / per_worker the workers
    decide, above it something else.
    """

    per_worker: float
    ceiling: float
    workers: float


def knee(workers: Sequence[int], rates: Sequence[float]) -> Knee:
    """The knee of rates over workers, by least squares of logarithms over every split; where no
    point is level, `ceiling` is infinite.
    """
    if len(workers) < 2 or not (np.array([*workers, *rates]) > 0).all():
        raise ValueError(f"a knee needs at least two positive points: there are {len(workers)}")
    order = np.argsort(workers)
    w, r = (np.log(np.asarray(values, dtype=float)[order]) for values in (workers, rates))
    best, found = math.inf, Knee(math.nan, math.inf, math.inf)
    for rising in range(1, len(w) + 1):
        slope = float((r[:rising] - w[:rising]).mean())
        level = float(r[rising:].mean()) if rising < len(w) else math.inf
        error = float(((np.minimum(slope + w, level) - r) ** 2).sum())
        if error < best * (1 - 1e-9):
            best, found = error, Knee(math.exp(slope), math.exp(level), math.exp(level - slope))
    if found.workers > LEVEL * math.exp(w[-1]):  # the last point alone is hardly below the line
        return Knee(math.exp(float((r - w).mean())), math.inf, math.inf)
    return found


DRAWS, BELIEVED = 499, 0.05


def _costs(rows: np.ndarray) -> np.ndarray:
    """[row][k]: squared deviations of x_1 .. x_k and of x_{k+1} .. x_n from their means; infinite
    where the second mean is larger.
    """
    n = rows.shape[1]
    k = np.arange(n // 2 + 1)
    sums = np.hstack([np.zeros((len(rows), 1)), np.cumsum(rows, axis=1)])
    early, total = sums[:, k], sums[:, -1:]
    before, after = early / np.maximum(k, 1), (total - early) / (n - k)
    costs = (rows**2).sum(axis=1, keepdims=True) - before * early - after * (total - early)
    costs[:, 1:] = np.where(before > after, costs, np.inf)[:, 1:]
    return costs


def change_point(times_s: Sequence[float]) -> int:
    """The steps of warm-up: one change point in the step times of a Run; 0 where they are steady
    from the first. Let x_1 .. x_n be logarithms of step times, those of more than twice the median
    step counted as twice and of less than half as half (a first step may take a hundred times as
    long as the next ones, and would be all that is seen). Two levels are fitted by least squares:
    x_i = a for i <= k and b < a for i > k, k at most n / 2. The change is believed if its fit is
    better than that of at least 95% of 499 random orders of the same times; an order keeps no
    beginning, so a Run that is steady from the first is said to be so.
    """
    times = np.asarray(times_s, dtype=float)
    if len(times) < 8:
        raise ValueError(f"{len(times)} steps are too few to see a change: at least 8 are needed")
    if not (times > 0).all():
        raise ValueError(f"step times must be positive: one is {times.min()}")
    x = np.log(np.clip(times / float(np.median(times)), 0.5, 2.0))
    costs = _costs(x[None])[0]
    k = int(np.argmin(costs))
    if k:
        orders = np.random.default_rng(0).permuted(np.broadcast_to(x, (DRAWS, len(x))), axis=1)
    else:
        orders = x[None]
    p = (1 + (_costs(orders).min(axis=1) <= costs[k]).sum()) / (1 + DRAWS)
    return k if p <= BELIEVED else 0


def warmup_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a Record whose steps the devices' own clocks tell, of each step the slowest rank's
    time: steps of warm-up and their seconds, first_step_s; settled_step_s, the median after them;
        startup_s of the launch and build_s of the Run.
    """
    rows = []
    for record in records:
        m = record.measurement
        if (
            record.status != "ok"
            or m is None
            or m.step_clock != "device"
            or record.run.traced_steps
            or len(m.step_time_s[0]) < 8
        ):
            continue
        slowest = np.max(np.array(m.step_time_s), axis=0)
        steps = change_point(slowest)
        settled_s = np.median(slowest[steps:])
        seconds = (slowest[:steps].sum(), slowest[0], settled_s, m.startup_s, m.build_s)
        rows.append((record.key, steps, *seconds))
    return pd.DataFrame(rows, columns=list(columns("warmup")))


STEPS = 10
"""First steps whose losses are averaged: later ones amplify rounding, and two placements in one
precision part as far as two precisions.
"""

JOB, WAY = (tuple(columns(frame)) for frame in ("parity_job", "parity_way"))

DRAWN = ("cnn", "stacks")
"""Workloads whose synthetic batches each framework draws by its own generator."""

PLAIN = {"framework": "torch", "placement": "ddp", "execution": "eager", "precision": "fp32"}
"""Of the Run that gives a job's reference."""


def learning_losses(record: Record) -> list[float]:
    """The losses of a measured Record's steps without those whose update an overflow left out
    (fp16, its scale being found): after such a step the same batch has the same loss once more. As
        many are passed over as were counted.
    """
    assert record.measurement
    every, left = record.measurement.loss, sum(record.measurement.skipped_steps or ())
    kept = []
    for index, loss in enumerate(every):
        if left and index + 1 < len(every) and every[index + 1] == loss:
            left -= 1
        else:
            kept.append(loss)
    return kept


def parity(records: Iterable[Record]) -> pd.DataFrame:
    """A row for each measured Record whose job has a fp32 reference: `JOB`, placement, `WAY`,
    staged, key and difference.
    difference: mean loss of the first `STEPS` steps that updated (`learning_losses`) over the
        reference's, minus 1. Independent replicas learn other things than the global batch, and
        TensorFlow draws other synthetic images and samples, so both are left out. staged: it
        computes with variables that are one update old, which is other training by its meaning.
    """
    names = (*JOB, *WAY, "placement")
    rows = []
    for record in records:
        run = record.run
        apart = (run.placement == "independent" and run.devices > 1) or (
            run.workload in DRAWN and run.framework != "torch"
        )
        if record.measurement and len(record.measurement.loss) >= STEPS and not apart:
            own = {
                "key": record.key,
                "loss": fmean(learning_losses(record)[:STEPS]),
                "staged": find_placement(run.placement).staged,
            }
            rows.append(run.values_of(*names) | own)
    table = pd.DataFrame(rows, columns=[*names, "staged", "key", "loss"])
    plain = table[table[list(PLAIN)].eq(list(PLAIN.values())).all(axis=1)].drop_duplicates(
        JOB, keep="last"
    )
    found = table.merge(plain[[*JOB, "loss"]], on=list(JOB), suffixes=("", "_plain"))
    return found.drop(columns=["loss", "loss_plain"]).assign(
        difference=found["loss"] / found["loss_plain"] - 1
    )


STEP_COLUMNS = columns("step_times")


def step_times(records: Iterable[Record], keys: Sequence[str]) -> pd.DataFrame:
    """Every step of the measured Records called `keys`, warm-up included: a row a rank and step
    (key, rank, step, timed, step_time_s).
    """
    rows = []
    wanted = set(keys)
    for record in records:
        if record.key in wanted and record.status == "ok" and record.measurement is not None:
            for rank, times in enumerate(record.measurement.step_time_s):
                rows += [
                    (record.key, rank, step, step >= record.run.warmup_steps, time)
                    for step, time in enumerate(times)
                ]
    return pd.DataFrame(rows, columns=list(STEP_COLUMNS)).astype(STEP_COLUMNS)
