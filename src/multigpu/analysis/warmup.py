"""Where warm-up ends: one change point in the step times of a Run, in steps and in seconds.

Method. Let x_1 .. x_n be logarithms of step times, those of more than twice the median step counted as twice and of less than half as half
(a first step may take a hundred times as long as the next ones, and would be all that is seen). Two levels are fitted by least squares:
x_i = a for i <= k and b < a for i > k, k at most n / 2. The change is believed if its fit is better than that of at least 95% of 499
random orders of the same times; an order keeps no beginning, so a Run that is steady from the first is said to be so. Seconds are the sum
of the first k steps, as they were measured.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from multigpu.record import Record

DRAWS = 499
BELIEVED = 0.05


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


def change_point(times_s: Sequence[float]) -> int:
    """The steps of warm-up, 0 where times are steady from the first; see above.

    Raises:
        ValueError: fewer than 8 steps, which tell no two levels apart, or a time that is not positive.
    """
    times = np.asarray(times_s, dtype=float)
    if len(times) < 8:
        raise ValueError(f"{len(times)} steps are too few to see a change: at least 8 are needed")
    if not (times > 0).all():
        raise ValueError(f"step times must be positive: one is {times.min()}")
    x = np.log(np.clip(times / float(np.median(times)), 0.5, 2.0))
    costs = _costs(x[None])[0]
    k = int(np.argmin(costs))
    orders = np.random.default_rng(0).permuted(np.broadcast_to(x, (DRAWS, len(x))), axis=1) if k else x[None]
    p = (1 + (_costs(orders).min(axis=1) <= costs[k]).sum()) / (1 + DRAWS)
    return k if k and p <= BELIEVED else 0


def warmup_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a Record whose steps the devices' own clocks tell, of each step the slowest rank's time.

    steps of warm-up and their seconds; first_step_s; settled_step_s, the median after them; startup_s of the launch and build_s of the Run.
    """
    rows = []
    for record in records:
        m = record.measurement
        if record.status != "ok" or m is None or m.step_clock != "device" or record.run.traced_steps or len(m.step_time_s[0]) < 8:
            continue
        slowest = np.max(np.array(m.step_time_s), axis=0)
        steps = change_point(slowest)
        rows.append((record.key, steps, slowest[:steps].sum(), slowest[0], np.median(slowest[steps:]), m.startup_s, m.build_s))
    return pd.DataFrame(rows, columns=["key", "steps", "seconds", "first_step_s", "settled_step_s", "startup_s", "build_s"])
