"""Intervals for products and ratios of rates, on a log scale, since rates are positive and their
errors multiply: a ratio of two geometric means, with a Welch t interval (unequal variances,
    Satterthwaite's degrees of freedom). Repeats of one launch resemble each other, so repeats count
    as independent only where the launches do not differ: an F test at 25%, the customary level for
    pooling. Otherwise the launches are the units, with as few degrees of freedom.

With 3 + 2 repeats a side and launches that wander 0, 1, 2 and 5 times as much as repeats, 95%
intervals so made held the true ratio in 98, 94, 95 and 96% of 3,000 simulations; a Welch interval
blind to launches in 96, 85, 75 and 68%.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

LEVEL = 0.95
POOL = 0.25


def log_samples(
    values: pd.Series, groups: pd.Series, launches: pd.Series, boots: pd.Series | None = None
) -> pd.DataFrame:
    """By group: log_mean, log_variance (of it; NaN of one) and log_freedom of positive values;
    launches are units where they differ. boots: what is told apart within a group before, so that
    the variance is that within them.
    """
    logs: Any = np.log(values.astype("float64"))
    cells = [groups] if boots is None else [groups, boots]
    mean, n = logs.groupby(groups).mean(), logs.groupby(groups).size()
    apart_from = logs - logs.groupby(cells).transform("mean")
    each = apart_from.groupby([*cells, launches], dropna=False)
    size, total = each.size(), (apart_from**2).groupby(groups).sum()
    count = size.groupby(level=0).size()
    between = (size * each.mean() ** 2).groupby(level=0).sum()
    levels = 1 if boots is None else logs.groupby(cells).size().groupby(level=0).size()
    with np.errstate(divide="ignore", invalid="ignore"):
        of_launches = between / (count - levels)
        ratio = of_launches / np.maximum((total - between).clip(lower=0) / (n - count), 1e-30)
        # a variance below this is rounding
        apart = (
            (count > levels)
            & (count < n)
            & (of_launches > 1e-24)
            & (special.fdtrc(count - levels, n - count, ratio) < POOL)
        )
        variance = np.where(apart, of_launches, total / (n - levels)) / n
    return pd.DataFrame(
        {
            "log_mean": mean,
            "log_variance": variance,
            "log_freedom": np.where(apart, count - levels, n - levels).astype("float64"),
        }
    )


def half_width(variance: Any, freedom: Any) -> Any:
    """Half the width of a Student's t interval of a mean with this variance: NaN where that is NaN,
    0 where it is 0.
    """
    variance = np.asarray(variance, dtype=float)
    quantile = special.stdtrit(np.maximum(np.asarray(freedom, dtype=float), 1e-9), 0.5 + LEVEL / 2)
    return np.where(variance > 0, quantile * np.sqrt(np.maximum(variance, 0.0)), variance)


def combined(over: Sequence[pd.DataFrame], under: Sequence[pd.DataFrame] = ()) -> pd.DataFrame:
    """The product of some sides' rates over that of others, row by row: rate, log_variance and
    log_freedom (Welch's and Satterthwaite's). For sides that no boot sets apart.
    """
    rate = math.prod((side["rate"] for side in over[1:]), start=over[0]["rate"])
    rate = rate / math.prod((side["rate"] for side in under), start=1.0)
    variances, freedoms = (
        [side[name].astype("float64") for side in (*over, *under)]
        for name in ("log_variance", "log_freedom")
    )
    variance = sum(variances[1:], start=variances[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = variance**2 / sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))
    return pd.DataFrame({"rate": rate, "log_variance": variance, "log_freedom": freedom})


def mean_interval(values: Any) -> tuple[float, float]:
    """The 95% interval of a mean (Student's t), in the unit of the values; NaN of fewer than
    two.
    """
    known = np.asarray(values, dtype=float)
    if known.size < 2:
        return math.nan, math.nan
    half = float(half_width(known.var(ddof=1) / known.size, known.size - 1))
    return float(known.mean()) - half, float(known.mean()) + half


def chance_above(excess: Any, variance: Any, freedom: Any) -> Any:
    """How likely an estimate is that lies `excess` or more above what is true (Student's t); NaN
    without a variance.
    """
    excess, variance = (np.asarray(value, dtype=float) for value in (excess, variance))
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = special.stdtr(freedom, -excess / np.sqrt(variance))
    return np.where(variance <= 0, np.where(excess > 0, 0.0, 1.0), chance)


def chance_of_ratio(ratio: Any, freedom: Any, other: Any = math.inf) -> Any:
    """How likely the ratio of two mean squares of equal expectation is so large or larger: of an F,
    or of chi-squared over its freedom.
    """
    if np.isscalar(other) and np.isinf(other):
        return special.chdtrc(freedom, ratio * freedom)
    return special.fdtrc(freedom, other, ratio)
