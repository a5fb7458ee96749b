"""The study's formulas: pure functions on numbers and arrays, each with its one definition and unit.

Intervals are Student's t, never a bootstrap: with n = 5 repeats, the headline's own n, the percentile bootstrap's nominal 95%
interval held the true mean in 83% of 4,000 simulated normal samples, Student's t in 95% (with exponential tails: 80% and
89%); `tests/analysis/test_formulas.py` repeats this. Intervals of rates and of their ratios are taken on logarithms, by
`analysis.statistics`: figures, tables and verdicts share one rule, which counts repeats as independent only where launches
do not differ, and else takes the launches as the units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from multigpu.analysis.statistics import Sample, sample
from multigpu.analysis.statistics import interval as half_width

MAD_TO_SIGMA = 1.4826
"""1 / the 0.75 quantile of a standard normal: makes the median absolute deviation estimate a normal's sigma."""

Numbers = Sequence[float] | np.ndarray | Any
Launches = Sequence[str] | None


class Interval(NamedTuple):
    """Two bounds in the unit of what they bound; NaN where there are too few repeats to give any."""

    low: float
    high: float

    @property
    def given(self) -> bool:
        return not (np.isnan(self.low) or np.isnan(self.high))


NO_INTERVAL = Interval(float("nan"), float("nan"))


def _array(values: Numbers) -> np.ndarray:
    return np.asarray(values, dtype=float).ravel()


def throughput(units: float, wall_s: float) -> float:
    """R = U / T: units a second, of U units (words, images or rows of reviews of all devices) in T seconds of wall-clock time.

    Raises:
        ValueError: T is not positive.
    """
    if not wall_s > 0:
        raise ValueError(f"a throughput needs a positive time, not {wall_s} s")
    return units / wall_s


def pooled_rate(units: Numbers, wall_s: Numbers) -> float:
    """R = sum U_i / sum T_i over repeats i: all units over all time, in units a second; NaN without repeats.

    The mean of the rates U_i / T_i would weigh fast repeats too much: two repeats of 100 units in 1 s and in 4 s are
    200 units in 5 s, so 40 units/s, while their rates' mean says 62.5.
    """
    total = _array(wall_s).sum()
    return float(_array(units).sum() / total) if total > 0 else float("nan")


def speedup(rate_n: float, rate_1: float) -> float:
    """S = R_N / R_1: how many times the baseline's units a second; a ratio.

    The same formula serves weak scaling (N times the work in T_N: S = N T_1 / T_N) and strong scaling (the same work:
    S = T_1 / T_N), because R counts the units of all devices.
    """
    return rate_n / rate_1 if rate_1 > 0 else float("nan")


def efficiency(speedup: float, devices: int) -> float:
    """E = S / N: the share of N devices' ideal speed that is reached; a ratio, 1 is perfect."""
    return speedup / devices


def overhead(efficiency: float) -> float:
    """O = 1 / E - 1: the time N devices lose against perfect scaling, as a share of the perfect time.

    For a fixed amount of work one device needs T_1, perfect scaling T_1 / N, and N devices need T_1 / S. The loss is
    (T_1 / S - T_1 / N) / (T_1 / N) = N / S - 1 = 1 / E - 1. E = 0.8 means 25% more time than perfect.
    """
    return 1 / efficiency - 1 if efficiency > 0 else float("nan")


def exposed(step_time_s: float, step_time_without_communication_s: float) -> float:
    """X = t - t0 in seconds: the communication a step waits for, t0 being the same step with nothing sent.

    Communication that hides behind computing costs nothing here. t0 is measured (independent replicas in the same
    sweep); X may come out negative within the noise of both, and is then left so.
    """
    return step_time_s - step_time_without_communication_s


def jitter(step_times: Numbers) -> float:
    """J = 1.4826 median |t_i - median t|: the robust standard deviation of step times, in seconds (tf_cnn_benchmarks)."""
    times = _array(step_times)
    return float(MAD_TO_SIGMA * np.median(np.abs(times - np.median(times)))) if times.size else float("nan")


def spread(values: Numbers) -> float:
    """(largest - smallest) / mean: all the disagreement there was among repeats, as a ratio; 0 for one repeat."""
    values = _array(values)
    return float((values.max() - values.min()) / values.mean()) if values.size else float("nan")


def interval(values: Numbers, confidence: float = 0.95) -> Interval:
    """Student's t interval of the mean: m +- t_(n-1) s / sqrt(n), in the unit of `values`; NaN for n = 1 (screening)."""
    values = _array(values)
    n = values.size
    if n < 2:
        return NO_INTERVAL
    half = float(special.stdtrit(n - 1, (1 + confidence) / 2) * values.std(ddof=1) / np.sqrt(n))
    return Interval(float(values.mean()) - half, float(values.mean()) + half)


def _log_sample(units: np.ndarray, wall_s: np.ndarray, launches: Launches) -> Sample:
    return sample(list(units / wall_s), list(range(units.size)) if launches is None else list(launches))


def rate_interval(units: Numbers, wall_s: Numbers, launches: Launches = None, confidence: float = 0.95) -> Interval:
    """The interval of a pooled rate R in units/s: R exp(-h) .. R exp(h); NaN for n = 1.

    h = t_v s / sqrt(n), s the standard deviation of ln(U_i / T_i), v = n - 1. Where launches differ (F test at 25%), s is
    that between launches and v their number less 1: five repeats over two launches that disagree are two measurements.
    Without `launches` every repeat counts as its own.
    """
    units, wall_s = _array(units), _array(wall_s)
    if units.size < 2:
        return NO_INTERVAL
    rate, half = pooled_rate(units, wall_s), half_width([_log_sample(units, wall_s, launches)], confidence)
    return Interval(rate * float(np.exp(-half)), rate * float(np.exp(half)))


def ratio_interval(
    units_n: Numbers,
    wall_n: Numbers,
    units_1: Numbers,
    wall_1: Numbers,
    launches_n: Launches = None,
    launches_1: Launches = None,
    confidence: float = 0.95,
) -> Interval:
    """The interval of S = R_n / R_1, two pooled rates of independent groups; a ratio; NaN where either has n = 1.

    Welch's t on logarithms: S exp(+-h), h = t_v sqrt(e_n^2 + e_1^2), e each group's standard error of ln(U_i / T_i) (see
    `rate_interval`), v = (e_n^2 + e_1^2)^2 / (e_n^4 / v_n + e_1^4 / v_1) (Welch, Satterthwaite). Chosen over Fieller's interval,
    which can be unbounded or two pieces: this one always contains S, is positive, and turns into its own reciprocal when the
    groups change places. The two agree while relative errors are a few percent. Launches shared by both groups would make
    it narrower still; that is not used.
    """
    groups = [(_array(units_n), _array(wall_n), launches_n), (_array(units_1), _array(wall_1), launches_1)]
    if min(units.size for units, _, _ in groups) < 2:
        return NO_INTERVAL
    ratio = pooled_rate(*groups[0][:2]) / pooled_rate(*groups[1][:2])
    half = half_width([_log_sample(*group) for group in groups], confidence)
    return Interval(ratio * float(np.exp(-half)), ratio * float(np.exp(half)))


def launch_gap(units: Numbers, wall_s: Numbers, launches: Sequence[str]) -> float:
    """(fastest launch - slowest launch) / pooled rate, each launch by its own pooled rate; a ratio, NaN for one launch."""
    units, wall_s, names = _array(units), _array(wall_s), np.asarray(launches, dtype=object)
    rates = [pooled_rate(units[names == name], wall_s[names == name]) for name in set(launches)]
    return (max(rates) - min(rates)) / pooled_rate(units, wall_s) if len(rates) > 1 else float("nan")
