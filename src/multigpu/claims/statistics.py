"""The figures of a contrast, one named function a form, each from pairs to a table; and what an interval says against the margin.

A ratio is what `compare.versus` makes of two points, or of two such ratios: sides of `compare.counterparts`, joined by `compare.combined`.
Three forms are no ratio of points' means: repeats that began alike, a share of differences, and mean squares. They use the same pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from multigpu.analysis.compare import combined
from multigpu.analysis.statistics import chance_above, chance_of_ratio, half_width, log_samples
from multigpu.claims.core import LEVEL, POOLED_FREEDOM, Contrast, Verdict
from multigpu.claims.pairs import Pairs

Chance = Callable[[float], Any]


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


def _figures(contrast: Contrast, estimate: Any, low: Any, high: Any, above: Chance, below: Chance) -> pd.DataFrame:
    """Estimates with their 95% intervals, and the one-sided p-values `holding` (if it does not hold) and `failing` (if it does not fail).

    above: the chance of so large an estimate if the truth were a value. below: of so small a one.
    """
    bound = contrast.bound
    over, under = above(bound), below(bound)
    if contrast.two_sided:
        over, under = np.maximum(above(1 / bound), under), np.minimum(below(1 / bound), over)
    holding, failing = (over, under) if contrast.direction in ("above", "within") else (under, over)
    return pd.DataFrame({"estimate": estimate, "low": low, "high": high, "holding": holding, "failing": failing})


def _student(contrast: Contrast, middle: pd.Series, variance: pd.Series, freedom: pd.Series, log: bool = True) -> pd.DataFrame:
    """Means with their variances (NaN: of one repeat), by Student's t; log: they are those of logarithms."""
    half = half_width(variance, freedom.fillna(1.0))
    estimate, low, high = (np.exp(end) if log else end for end in (middle, middle - half, middle + half))

    def chance(sign: int) -> Chance:
        return lambda truth: chance_above(sign * (middle - (np.log(truth) if log else truth)), variance, freedom)

    return _figures(contrast, estimate, low, high, chance(1), chance(-1))


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


def ratio(pairs: Pairs) -> pd.DataFrame:
    """The product of the geometric means of the terms above over that of those below."""
    sides, over = _sides(pairs), len(pairs.contrast.over)
    table = combined(sides[:over], sides[over:])
    return _student(pairs.contrast, np.log(table["rate"]), table["log_variance"], table["log_freedom"]).join(_least(sides))


def paired_ratio(pairs: Pairs) -> pd.DataFrame:
    """The geometric mean of the ratios of repeats that all terms have; NaN without any.

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
    found = _student(pairs.contrast, points["log_mean"], points["log_variance"], points["log_freedom"])
    return found.join(points[["n", "launches"]]).reindex(pairs.settings.index)


def share(pairs: Pairs) -> pd.DataFrame:
    """1 - (third - fourth) / (first - second) of the terms' means; variances by the delta method, Satterthwaite's freedom.

    Where the second has as much as the first there is no share: 0, without an interval.
    """
    sides = _sides(pairs)
    first, second, third, fourth = (side["rate"] for side in sides)
    added = (first - second).replace(0.0, np.nan)
    left = (third - fourth) / added
    weights = [(left / added) ** 2] * 2 + [added**-2] * 2
    parts = [weight * side["rate"] ** 2 * side["log_variance"] for weight, side in zip(weights, sides, strict=True)]
    variance = sum(parts[1:], start=parts[0])
    freedom = variance**2 / sum(part**2 / side["log_freedom"] for part, side in zip(parts, sides, strict=True))
    return _student(pairs.contrast, (1 - left).fillna(0.0), variance, freedom, log=False).join(_least(sides))


def pooled(pairs: Pairs) -> pd.DataFrame:
    """The mean of mean squares over that of the other side (or over 1): an F, or chi-squared over its freedom."""
    sides = _sides(pairs)
    means = [pairs.records.groupby("point")["value"].mean()[pairs.settings[number]].to_numpy() for number in range(len(sides))]
    value, own, other = means[0], POOLED_FREEDOM * sides[0]["n"], POOLED_FREEDOM * sides[1]["n"] if len(sides) > 1 else np.inf
    value = value / means[1] if len(sides) > 1 else value

    def above(truth: float) -> Any:
        return chance_of_ratio(value / truth, own, other)

    ends = (special.fdtri(own, other, 1 - p) if len(sides) > 1 else special.chdtri(own, p) / own for p in (LEVEL, 1 - LEVEL))
    low, high = (value / end for end in ends)
    return _figures(pairs.contrast, value, low, high, above, lambda truth: 1 - above(truth)).join(_least(sides))


def estimates(pairs: Pairs) -> pd.DataFrame:
    """The figure of each setting: estimate (NaN where it has none), low, high (95%; NaN: of one repeat), holding, failing, n, launches."""
    forms = {"ratio": ratio, "paired": paired_ratio, "share": share, "pooled": pooled}
    return forms["paired" if pairs.contrast.paired else pairs.contrast.form](pairs)
