"""The figures of a contrast, one named function a form, each from pairs to estimates; and what an estimate says against the margin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from multigpu.analysis.compare import combined
from multigpu.analysis.statistics import chance_above, chance_of_ratio, half_width, log_samples
from multigpu.claims.core import LEVEL, POOLED_FREEDOM, Contrast, Verdict
from multigpu.claims.pairs import Pairs


class Estimate(NamedTuple):
    """A figure with its 95% interval (nan: none), and repeats and launches of the least side.

    above: the chance of so large an estimate if the truth were a value. below: of so small a one.
    """

    value: float
    low: float
    high: float
    n: int
    launches: int
    above: Callable[[float], float]
    below: Callable[[float], float]


def judge(contrast: Contrast, low: float, high: float) -> Verdict:
    """The verdict of one interval, as if it were the only one."""
    bound = contrast.bound
    if contrast.direction == "above":
        holds, fails = low >= bound, high < bound
    elif contrast.direction == "below":
        holds, fails = high <= bound, low > bound
    else:
        inside, outside = low >= 1 / bound and high <= bound, high < 1 / bound or low > bound
        holds, fails = (inside, outside) if contrast.direction == "within" else (outside, inside)
    return "holds" if holds else "does not hold" if fails else "inconclusive"


def chances(contrast: Contrast, estimate: Estimate) -> tuple[float, float]:
    """One-sided p-values of a contrast: against that it does not hold, and against that it does not fail."""
    bound = contrast.bound
    above, below = estimate.above(bound), estimate.below(bound)
    if contrast.direction in ("above", "below"):
        return (above, below) if contrast.direction == "above" else (below, above)
    inside = max(estimate.above(1 / bound), below)  # two one-sided tests
    outside = min(estimate.below(1 / bound), above)
    return (inside, outside) if contrast.direction == "within" else (outside, inside)


def sampled(values: pd.Series, groups: pd.Series, launch: pd.Series) -> pd.DataFrame:
    """By group: `log_samples` of the values, n and launches."""
    found = log_samples(values, groups, launch)
    return found.assign(n=groups.value_counts(), launches=launch.groupby(groups).nunique())


def _terms(pairs: Pairs) -> list[pd.DataFrame]:
    """The pooled points of each term, a row a setting: rate (the geometric mean), log_variance, log_freedom, n, launches."""
    records = pairs.records
    points = sampled(records["value"], records["point"], records["launch_id"].astype(object))
    found = []
    for number, term in enumerate(pairs.contrast.terms):
        side = points.loc[pairs.settings[number]].reset_index(drop=True)
        off = np.log(term.devices or pairs.settings["devices"]) if pairs.contrast.per_device else 0.0
        found.append(side.assign(rate=np.exp(side["log_mean"] - off)))
    return found


def _least(sides: Sequence[pd.DataFrame]) -> list[tuple[int, int]]:
    return [tuple(int(min(side[name][row] for side in sides)) for name in ("n", "launches")) for row in sides[0].index]  # type: ignore[misc]


def _of_logs(table: pd.DataFrame, least: Sequence[tuple[int, int]]) -> list[Estimate]:
    """Estimates of ratios; table: rate, log_variance, log_freedom."""
    half = half_width(table["log_variance"], table["log_freedom"].fillna(1.0))
    found = []
    for (value, variance, freedom), width, (n, launches) in zip(
        table[["rate", "log_variance", "log_freedom"]].itertuples(index=False), half, least, strict=True
    ):
        middle = math.log(value)
        above, below = _student(middle, variance, freedom, math.log)
        found.append(Estimate(value, math.exp(middle - width), math.exp(middle + width), n, launches, above, below))
    return found


def _student(middle: float, variance: float, freedom: float, scale: Callable[[float], float]) -> list[Callable[[float], float]]:
    """Chances of an estimate `middle` or more, and or less, if the truth were a value; scale: of a value, what has this variance."""
    return [lambda truth, sign=sign: chance_above(sign * (middle - scale(truth)), variance, freedom) for sign in (1, -1)]  # type: ignore[misc]


def ratio(pairs: Pairs) -> list[Estimate | None]:
    """The product of the geometric means of the terms above over that of those below."""
    sides = _terms(pairs)
    above, below = sides[: len(pairs.contrast.over)], sides[len(pairs.contrast.over) :]
    return [*_of_logs(combined(above, below), _least(sides))]


def paired_ratio(pairs: Pairs) -> list[Estimate | None]:
    """The geometric mean of the ratios of repeats that all terms have; None without any.

    What a repeat has in common with its counterparts is its number, and the machine and version that measured it.
    """
    own = pairs.records[["point", "like", "repeat", "value", "launch_id"]].astype({"launch_id": object})
    own = own.drop_duplicates(["point", "like", "repeat"], keep="last")
    table = pairs.settings.reset_index(names="setting").assign(logs=0.0)
    for term, fixed in enumerate(one.devices for one in pairs.contrast.terms):
        table = table.merge(own.rename(columns={"point": term, "launch_id": f"launch {term}"}))
        logs = np.log(table.pop("value")) - (np.log(fixed or table["devices"]) if pairs.contrast.per_device else 0.0)
        table["logs"] += logs if term < len(pairs.contrast.over) else -logs
    launches = table[[f"launch {term}" for term in range(len(pairs.contrast.terms))]]
    together = pd.Series([*launches.itertuples(index=False, name=None)], index=table.index, dtype=object)
    points = sampled(np.exp(table["logs"]), table["setting"], together)
    found = dict(zip(points.index, _of_logs(points.assign(rate=np.exp(points["log_mean"])).reset_index(), _least([points])), strict=True))
    return [found.get(setting) for setting in pairs.settings.index]


def share(pairs: Pairs) -> list[Estimate | None]:
    """1 - (third - fourth) / (first - second) of the terms' means; variances by the delta method, Satterthwaite's freedom."""
    sides = _terms(pairs)
    return [_share([side.iloc[row] for side in sides], *least) for row, least in enumerate(_least(sides))]


def _share(terms: Sequence[pd.Series], n: int, launches: int) -> Estimate:
    means = [term["rate"] for term in terms]
    squares = [mean**2 * term["log_variance"] for mean, term in zip(means, terms, strict=True)]  # of the means themselves
    added, left = means[0] - means[1], means[2] - means[3]
    if added == 0:  # nothing was added: no share of it
        return Estimate(0.0, math.nan, math.nan, n, launches, lambda _: math.nan, lambda _: math.nan)
    weights = [(left / added**2) ** 2] * 2 + [added**-2] * 2
    parts = [weight * square for weight, square in zip(weights, squares, strict=True)]
    variance, middle = math.fsum(parts), 1 - left / added
    freedom = variance**2 / math.fsum(part**2 / term["log_freedom"] for part, term in zip(parts, terms, strict=True)) if variance else 1.0
    half = float(half_width(variance, freedom))
    return Estimate(middle, middle - half, middle + half, n, launches, *_student(middle, variance, freedom, float))


def pooled(pairs: Pairs) -> list[Estimate | None]:
    """The mean of mean squares over that of the other side (or over 1): an F, or chi-squared over its freedom."""
    points = pairs.records.groupby("point")
    means, counts, launches = points["value"].mean(), points.size(), points["launch_id"].nunique()
    found: list[Estimate | None] = []
    for sides in pairs.settings[list(range(len(pairs.contrast.terms)))].itertuples(index=False):
        freedoms = [float(POOLED_FREEDOM * counts[side]) for side in sides]
        value, own, other = means[sides[0]], freedoms[0], math.inf
        if len(sides) > 1:
            value, other = value / means[sides[1]], freedoms[1]
        found.append(_mean_square(value, own, other, *(int(min(of[side] for side in sides)) for of in (counts, launches))))
    return found


def _mean_square(value: float, own: float, other: float, n: int, launches: int) -> Estimate:
    def above(truth: float) -> float:
        return chance_of_ratio(value / truth, own, other)

    def below(truth: float) -> float:
        return 1 - above(truth)

    low, high = (_where_it_is(above if rising else below, value, rising) for rising in (True, False))
    return Estimate(value, low, high, n, launches, above, below)


def _where_it_is(chance: Callable[[float], float], value: float, rising: bool) -> float:
    """The truth at which an estimate so far off has a chance of 2.5%, by bisection of its logarithm."""
    near, far = math.log(value), math.log(value) + (-5.0 if rising else 5.0)
    for _ in range(60):
        middle = (near + far) / 2
        near, far = (middle, far) if chance(math.exp(middle)) > LEVEL else (near, middle)
    return math.exp(near)


STATISTICS: dict[str, Callable[[Pairs], Any]] = {"ratio": ratio, "paired": paired_ratio, "share": share, "pooled": pooled}
"""By the name that a contrast gives: `form`, or "paired" where its repeats are."""


def estimates(pairs: Pairs) -> list[Estimate | None]:
    """The figure of each setting; None where it has none."""
    if pairs.settings.empty:
        return []
    found: list[Estimate | None] = STATISTICS["paired" if pairs.contrast.paired else pairs.contrast.form](pairs)
    return found
