"""Intervals for products and ratios of rates, on a log scale.

Rates are positive and their errors multiply, so means, differences and intervals are taken of logarithms: a ratio of two
geometric means, with a Welch t interval (unequal variances, Satterthwaite's degrees of freedom). Repeats of one launch resemble
each other (the host wanders between launches), so repeats count as independent only where the launches do not differ:
an F test at 25%, the customary level for pooling. Otherwise the launches are the units, with as few degrees of freedom.

With 3 + 2 repeats a side and launches that wander 0, 1, 2 and 5 times as much as repeats, 95% intervals so made held the true
ratio in 98, 94, 95 and 96% of 3,000 simulations; a Welch interval blind to launches in 96, 85, 75 and 68%.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

LEVEL = 0.95
POOL = 0.25


@dataclass(frozen=True)
class Sample:
    """The mean of log values: n of them over `launches`, the variance of that mean and its degrees of freedom.

    launches_differ: whether launches were the units. A single value has no variance (nan) and no freedom (0).
    """

    n: int
    launches: int
    mean: float
    variance: float
    freedom: float
    launches_differ: bool = False


def sample(values: Sequence[float], launches: Sequence[Hashable]) -> Sample:
    """The Sample of positive `values`, each measured in the launch of the same position."""
    logs = [math.log(value) for value in values]
    groups: dict[Hashable, list[float]] = defaultdict(list)
    for log, launch in zip(logs, launches, strict=True):
        groups[launch].append(log)
    n, count = len(logs), len(groups)
    mean = math.fsum(logs) / n
    if n == 1:
        return Sample(1, 1, mean, math.nan, 0)
    total = math.fsum((log - mean) ** 2 for log in logs)
    if 1 < count < n:
        between = math.fsum(len(g) * (math.fsum(g) / len(g) - mean) ** 2 for g in groups.values())
        within = max(total - between, 0.0)
        mean_between, mean_within = between / (count - 1), within / (n - count)
        # below this, both are rounding
        if mean_between > 1e-24 and special.fdtrc(count - 1, n - count, mean_between / max(mean_within, 1e-30)) < POOL:
            return Sample(n, count, mean, mean_between / n, count - 1, launches_differ=True)
    return Sample(n, count, mean, total / (n - 1) / n, n - 1)


def freedom_of(parts: Sequence[Sample]) -> float:
    """Satterthwaite's degrees of freedom of a sum or difference of the samples' means, whose variances are above 0 in all."""
    variance = math.fsum(part.variance for part in parts)
    return variance**2 / math.fsum(part.variance**2 / part.freedom for part in parts)


def interval(parts: Sequence[Sample], level: float = LEVEL) -> float:
    """Half the width of the interval of a sum or difference of the samples' means; nan if one of them has no variance."""
    variance = math.fsum(part.variance for part in parts)
    return float(half_width(variance, freedom_of(parts) if variance > 0 else 1.0, level))


def half_width(variance: Any, freedom: Any, level: float = LEVEL) -> Any:
    """Half the width of a Student's t interval of a mean with this variance: NaN where that is NaN, 0 where it is 0."""
    variance = np.asarray(variance, dtype=float)
    quantile = special.stdtrit(np.maximum(np.asarray(freedom, dtype=float), 1e-9), 0.5 + level / 2)
    return np.where(variance > 0, quantile * np.sqrt(np.maximum(variance, 0.0)), variance)


def mean_interval(values: Any) -> tuple[float, float]:
    """The 95% interval of a mean (Student's t), in the unit of the values; NaN of fewer than two."""
    known = np.asarray(values, dtype=float)
    if known.size < 2:
        return math.nan, math.nan
    half = float(half_width(known.var(ddof=1) / known.size, known.size - 1))
    return float(known.mean()) - half, float(known.mean()) + half


def log_samples(values: pd.Series, groups: pd.Series, launches: pd.Series) -> pd.DataFrame:
    """`sample` of each group as columns: log_mean, log_variance, log_freedom."""
    found = {group: sample(values.iloc[at].tolist(), launches.iloc[at].tolist()) for group, at in groups.groupby(groups).indices.items()}
    rows = [(one.mean, one.variance, one.freedom) for one in found.values()]
    return pd.DataFrame(rows, index=pd.Index(found, dtype=groups.dtype), columns=["log_mean", "log_variance", "log_freedom"])


def chance_above(excess: Any, variance: Any, freedom: Any) -> Any:
    """How likely an estimate is that lies `excess` or more above what is true (Student's t); NaN without a variance."""
    excess, variance = (np.asarray(value, dtype=float) for value in (excess, variance))
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = special.stdtr(freedom, -excess / np.sqrt(variance))
    return np.where(variance <= 0, np.where(excess > 0, 0.0, 1.0), chance)


def chance_of_ratio(ratio: Any, freedom: Any, other: Any = math.inf) -> Any:
    """How likely the ratio of two mean squares of equal expectation is so large or larger: of an F, or of chi-squared over its freedom."""
    return special.chdtrc(freedom, ratio * freedom) if np.isscalar(other) and np.isinf(other) else special.fdtrc(freedom, other, ratio)


def holm(chances: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: those at or below alpha may be called so with a chance of alpha that any one of them is wrongly."""
    order = sorted(range(len(chances)), key=chances.__getitem__)
    adjusted, least = [0.0] * len(chances), 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, (len(chances) - rank) * chances[index]))
        adjusted[index] = least
    return adjusted


def holm_of_families(chances: Sequence[float], families: Sequence[Hashable]) -> list[float]:
    """Adjusted p-values by Holm within each family, and again over the families by the least of each."""
    family = pd.Series([repr(one) for one in families], dtype=object)
    within = pd.Series(chances, dtype=float).groupby(family).transform(lambda own: holm(own.tolist()))
    first = within.groupby(family).min().sort_values(kind="stable")
    times = pd.Series(range(len(first), 0, -1), index=first.index)
    least = (first * times).clip(upper=1.0).cummax()
    return np.maximum((within * family.map(times)).clip(upper=1.0), family.map(least)).tolist()
