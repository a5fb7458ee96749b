"""The figures of a contrast, one named function a form, each from pairs to estimates; and what an estimate says against the margin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import special

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
    above, below = estimate.above(contrast.bound), estimate.below(contrast.bound)
    if contrast.two_sided:
        above, below = max(estimate.above(1 / contrast.bound), below), min(estimate.below(1 / contrast.bound), above)
    return (above, below) if contrast.direction in ("above", "within") else (below, above)


def _student(middle: float, variance: float, freedom: float, n: float, launches: float, log: bool = True) -> Estimate:
    """A mean with its variance (nan: of one repeat), by Student's t; log: it is that of logarithms."""
    out, into = (math.exp, math.log) if log else (float, float)
    half = float(half_width(variance, 1.0 if math.isnan(freedom) else freedom))

    def chance(sign: int) -> Callable[[float], float]:
        return lambda truth: chance_above(sign * (middle - into(truth)), variance, freedom)

    return Estimate(out(middle), out(middle - half), out(middle + half), int(n), int(launches), chance(1), chance(-1))


def _sampled(values: pd.Series, groups: pd.Series, launch: pd.Series) -> pd.DataFrame:
    """By group: `log_samples` of the values, n and launches."""
    return log_samples(values, groups, launch).assign(n=groups.value_counts(), launches=launch.groupby(groups).nunique())


def _sides(pairs: Pairs) -> list[pd.DataFrame]:
    """The pooled points of each term, a row a setting: rate (the geometric mean), log_variance, log_freedom, n, launches."""
    records = pairs.records
    points = _sampled(records["value"], records["point"], records["launch_id"].astype(object))
    found = []
    for number, term in enumerate(pairs.contrast.terms):
        side = points.loc[pairs.settings[number]].reset_index(drop=True)
        off = np.log(term.devices or pairs.settings["devices"]) if pairs.contrast.per_device else 0.0
        found.append(side.assign(rate=np.exp(side["log_mean"] - off)))
    return found


def _least(sides: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([side[["n", "launches"]] for side in sides]).groupby(level=0).min()


def ratio(pairs: Pairs) -> list[Estimate | None]:
    """The product of the geometric means of the terms above over that of those below."""
    sides, over = _sides(pairs), len(pairs.contrast.over)
    table = combined(sides[:over], sides[over:]).join(_least(sides))
    return [_student(math.log(rate), *rest) for rate, *rest in table.itertuples(index=False)]


def paired_ratio(pairs: Pairs) -> list[Estimate | None]:
    """The geometric mean of the ratios of repeats that all terms have; None without any.

    What a repeat has in common with its counterparts is its number, and the machine and version that measured it.
    """
    own = pairs.records[["point", "like", "repeat", "value", "launch_id"]].astype({"launch_id": object})
    own = own.drop_duplicates(["point", "like", "repeat"], keep="last")
    table = pairs.settings.reset_index(names="setting").assign(logs=0.0)
    terms = pairs.contrast.terms
    for number, fixed in enumerate(one.devices for one in terms):
        table = table.merge(own.rename(columns={"point": number, "launch_id": f"launch {number}"}))
        logs = np.log(table.pop("value")) - (np.log(fixed or table["devices"]) if pairs.contrast.per_device else 0.0)
        table["logs"] += logs if number < len(pairs.contrast.over) else -logs
    launches = table[[f"launch {number}" for number in range(len(terms))]].itertuples(index=False, name=None)
    points = _sampled(np.exp(table["logs"]), table["setting"], pd.Series([*launches], index=table.index, dtype=object))
    found = {setting: _student(*point) for setting, *point in points.itertuples()}
    return [found.get(setting) for setting in pairs.settings.index]


def share(pairs: Pairs) -> list[Estimate | None]:
    """1 - (third - fourth) / (first - second) of the terms' means; variances by the delta method, Satterthwaite's freedom."""
    sides, found = _sides(pairs), list[Estimate | None]()
    for row, (n, launches) in enumerate(_least(sides).itertuples(index=False)):
        terms = [side.iloc[row] for side in sides]
        means = [term["rate"] for term in terms]
        added, left = means[0] - means[1], means[2] - means[3]
        if added == 0:  # nothing was added: no share of it
            found.append(_student(0.0, math.nan, math.nan, n, launches, log=False))
            continue
        weights = [(left / added**2) ** 2] * 2 + [added**-2] * 2
        parts = [weight * mean**2 * term["log_variance"] for weight, mean, term in zip(weights, means, terms, strict=True)]
        variance = math.fsum(parts)
        freedom = (
            variance**2 / math.fsum(part**2 / term["log_freedom"] for part, term in zip(parts, terms, strict=True)) if variance else 1.0
        )
        found.append(_student(1 - left / added, variance, freedom, n, launches, log=False))
    return found


def pooled(pairs: Pairs) -> list[Estimate | None]:
    """The mean of mean squares over that of the other side (or over 1): an F, or chi-squared over its freedom."""
    points = pairs.records.groupby("point")
    means, counts, launches = points["value"].mean(), points.size(), points["launch_id"].nunique()
    found: list[Estimate | None] = []
    for sides in pairs.settings[list(range(len(pairs.contrast.terms)))].itertuples(index=False):
        value, own, other = means[sides[0]], float(POOLED_FREEDOM * counts[sides[0]]), math.inf
        if len(sides) > 1:
            value, other = value / means[sides[1]], float(POOLED_FREEDOM * counts[sides[1]])
        found.append(_mean_square(value, own, other, *(int(min(of[side] for side in sides)) for of in (counts, launches))))
    return found


def _mean_square(value: float, own: float, other: float, n: int, launches: int) -> Estimate:
    def above(truth: float) -> float:
        return chance_of_ratio(value / truth, own, other)

    ends = [special.chdtri(own, p) / own if math.isinf(other) else special.fdtri(own, other, 1 - p) for p in (LEVEL, 1 - LEVEL)]
    low, high = (value / float(end) for end in ends)
    return Estimate(value, low, high, n, launches, above, lambda truth: 1 - above(truth))


def estimates(pairs: Pairs) -> list[Estimate | None]:
    """The figure of each setting; None where it has none."""
    forms = {"ratio": ratio, "paired": paired_ratio, "share": share, "pooled": pooled}
    return forms["paired" if pairs.contrast.paired else pairs.contrast.form](pairs) if len(pairs.settings) else []
