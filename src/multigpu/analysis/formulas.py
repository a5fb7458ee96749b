"""The study's formulas: pure functions on numbers, each with its one definition and unit (intervals: `statistics`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MAD_TO_SIGMA = 1.4826
"""1 / the 0.75 quantile of a standard normal: makes the median absolute deviation estimate a normal's sigma."""


def throughput(units: float, wall_s: float) -> float:
    """R = U / T: units a second, of U units (words, images or rows of reviews of all devices) in T seconds of wall-clock time.

    Of several repeats it is all units over all time: the mean of their rates would weigh fast repeats too much.

    Raises:
        ValueError: T is not positive.
    """
    if not wall_s > 0:
        raise ValueError(f"a throughput needs a positive time, not {wall_s} s")
    return units / wall_s


def overhead(efficiency: float) -> float:
    """O = 1 / E - 1: the time N devices lose against perfect scaling, as a share of the perfect time; E = S / N, S = R_N / R_1.

    For a fixed amount of work one device needs T_1, perfect scaling T_1 / N, and N devices need T_1 / S. The loss is
    (T_1 / S - T_1 / N) / (T_1 / N) = N / S - 1 = 1 / E - 1. E = 0.8 means 25% more time than perfect.
    """
    return 1 / efficiency - 1 if efficiency > 0 else float("nan")


def jitter(step_times_s: Sequence[float]) -> float:
    """J = 1.4826 median |t_i - median t|: the robust standard deviation of step times, in seconds (tf_cnn_benchmarks)."""
    times = np.asarray(step_times_s, dtype=float)
    return float(MAD_TO_SIGMA * np.median(np.abs(times - np.median(times)))) if times.size else float("nan")


def step_memory(step_times_s: Sequence[float], lags: int = 20) -> float | None:
    """Q / lags of Ljung and Box (1978): about 1 where steps do not remember each other, the larger the more they do.

    Q = n (n + 2) sum_k r_k^2 / (n - k) over k = 1 .. lags, r_k the autocorrelation. None below five steps a lag; 0 of equal steps.
    """
    series = np.asarray(step_times_s, dtype=float)
    count = series.size
    if count < 5 * lags:
        return None
    away = series - series.mean()
    total = float(away @ away)
    if total <= 1e-24 * max(1.0, float(series @ series)):
        return 0.0
    found = np.array([float(away[lag:] @ away[:-lag]) for lag in range(1, lags + 1)]) / total
    return float(count * (count + 2) * (found**2 / (count - np.arange(1, lags + 1))).sum() / lags)
