"""The study's formulas: pure functions on numbers, each with its one definition and unit
(intervals: `statistics`).
"""

from collections.abc import Sequence

import numpy as np

MAD_TO_SIGMA = 1.4826
"""1 / the 0.75 quantile of a standard normal: the median absolute deviation estimates a sigma."""


def throughput(units: float, wall_s: float) -> float:
    """R = U / T: units a second, of U units of all devices in T seconds of wall-clock time; of
    several repeats all units over all time.
    """
    if not wall_s > 0:
        raise ValueError(f"a throughput needs a positive time, not {wall_s} s")
    return units / wall_s


def jitter(step_times_s: Sequence[float]) -> float:
    """J = 1.4826 median |t_i - median t|: the robust standard deviation of step times, in seconds
    (tf_cnn_benchmarks).
    """
    times = np.asarray(step_times_s, dtype=float)
    if times.size:
        return float(MAD_TO_SIGMA * np.median(np.abs(times - np.median(times))))
    return float("nan")


LAGS = 20


def step_memory(step_times_s: Sequence[float]) -> float | None:
    """Q / 20 of Ljung and Box (1978): about 1 where steps do not remember each other, the larger
    the more they do. Q = n (n + 2) sum_k r_k^2 / (n - k) over k = 1 .. 20, r_k the autocorrelation.
    None below five steps a lag; 0 of equal steps.
    """
    series = np.asarray(step_times_s, dtype=float)
    count = series.size
    if count < 5 * LAGS:
        return None
    away = series - series.mean()
    total = float(away @ away)
    if total <= 1e-24 * max(1.0, float(series @ series)):
        return 0.0
    lags = np.arange(1, LAGS + 1)
    found = np.array([float(away[lag:] @ away[:-lag]) for lag in lags]) / total
    return float(count * (count + 2) * (found**2 / (count - lags)).sum() / LAGS)
