"""One setting of a contrast: its interval from the repeats of all sides, and how likely it holds or fails."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, NamedTuple

from multigpu.analysis.statistics import Sample, chance_above, chance_of_ratio, freedom_of, interval, sample
from multigpu.claims.core import POOLED_FREEDOM, Contrast, Predicate, Verdict
from multigpu.claims.records import RATE_BY_MEDIAN, STEP_BY_MEDIAN, Comparison, Row, quantity
from multigpu.claims.results import Setting
from multigpu.claims.wording import figure_of

BY_MEDIAN = {"units_per_s": RATE_BY_MEDIAN, "step_time_s": STEP_BY_MEDIAN}


class Estimate(NamedTuple):
    """A figure with its 95% interval (nan: none), repeats and launches of the least side; above: chance of it if the truth is a value."""

    value: float
    low: float
    high: float
    n: int
    launches: int
    above: Any  # (value) -> chance of so large an estimate if the truth were that value
    below: Any


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


def measure(contrast: Contrast, comparison: Comparison, predicate: Predicate) -> Setting:
    """The interval of a contrast in one setting, with its p-values where it has enough repeats; its verdict is left open."""
    found = estimated(contrast, comparison)
    enough = found.n >= predicate.min_n and found.launches >= predicate.min_launches
    known = not math.isnan(found.low)
    holding, failing = chances(contrast, found) if enough and known else (None, None)
    setting = Setting(
        framework=comparison.fields.get("framework", ""),
        contrast=contrast.label,
        fields={name: value if isinstance(value, int) else str(value) for name, value in comparison.fields.items()},
        devices=comparison.devices,
        estimate=found.value,
        low=found.low if known else None,
        high=found.high if known else None,
        n=found.n,
        launches=found.launches,
        enough=enough,
        verdict="inconclusive",
        text="",
        record_keys=tuple(sorted({row["key"] for group in comparison.groups for row in group})),
        flagged=sum(bool(row.get("flags")) for group in comparison.groups for row in group),
        holding=holding,
        failing=failing,
    )
    return setting.model_copy(update={"text": figure_of(setting, contrast)})


def estimated(contrast: Contrast, comparison: Comparison) -> Estimate:
    """The figure of a contrast in one setting, by its form."""
    if contrast.form == "pooled":
        return _pooled(contrast, comparison)
    if contrast.form == "share":
        return _share(contrast, comparison)
    parts, middle = (_pairs if contrast.paired else _sides)(contrast, comparison)
    half, variance = interval(parts), math.fsum(part.variance for part in parts)
    freedom = freedom_of(parts) if variance > 0 else math.nan
    return Estimate(
        math.exp(middle),
        math.exp(middle - half),
        math.exp(middle + half),
        min(part.n for part in parts),
        min(part.launches for part in parts),
        lambda truth: chance_above(middle - math.log(truth), variance, freedom),
        lambda truth: chance_above(math.log(truth) - middle, variance, freedom),
    )


def pair_of(row: Row) -> Hashable:
    """What a repeat has in common with its counterparts on the other sides: its number, and the machine and version that measured them."""
    return row["machine"], row.get("gpu") or "", row.get("framework_version") or "", row["repeat"]


def common_repeats(comparison: Comparison) -> list[Any]:
    """The repeats that all terms have."""
    return sorted(set.intersection(*({pair_of(row) for row in group} for group in comparison.groups)))


def _value(contrast: Contrast, row: Row, devices: int) -> float:
    value = quantity(row, contrast.quantity) or math.nan
    return value / devices if contrast.per_device else value


def _sides(contrast: Contrast, comparison: Comparison) -> tuple[list[Sample], float]:
    """A Sample of each term's repeats, and the logarithm of their product over that of the terms below."""
    parts, estimate = [], 0.0
    for index, (term, group) in enumerate(zip(contrast.terms, comparison.groups, strict=True)):
        values = [_value(contrast, row, term.devices or comparison.devices) for row in group]
        parts.append(sample(values, [row["launch_id"] for row in group]))
        estimate += parts[-1].mean * (1 if index < len(contrast.over) else -1)
    return parts, estimate


def _pairs(contrast: Contrast, comparison: Comparison) -> tuple[list[Sample], float]:
    """The one Sample of the ratios of repeats that all terms have, at least one, and its mean."""
    groups = [{pair_of(row): row for row in group} for group in comparison.groups]
    common = common_repeats(comparison)
    ratios = []
    for repeat in common:
        logs = [
            math.log(_value(contrast, group[repeat], term.devices or comparison.devices))
            for term, group in zip(contrast.terms, groups, strict=True)
        ]
        ratios.append(math.exp(math.fsum(logs[: len(contrast.over)]) - math.fsum(logs[len(contrast.over) :])))
    one = sample(ratios, [tuple(group[repeat]["launch_id"] for group in groups) for repeat in common])
    return [one], one.mean


def _share(contrast: Contrast, comparison: Comparison) -> Estimate:
    """1 - (third - fourth) / (first - second) of the terms' means; variances by the delta method, Satterthwaite's freedom."""
    parts, _ = _sides(contrast, comparison)
    means = [math.exp(part.mean) for part in parts]
    squares = [mean**2 * part.variance for mean, part in zip(means, parts, strict=True)]  # of the means themselves
    added, left = means[0] - means[1], means[2] - means[3]
    n, launches = min(part.n for part in parts), min(part.launches for part in parts)
    if added == 0:  # nothing was added: no share of it
        return Estimate(0.0, math.nan, math.nan, n, launches, lambda _: math.nan, lambda _: math.nan)
    share = 1 - left / added
    weights = [(left / added**2) ** 2] * 2 + [added**-2] * 2
    terms = [weight * square for weight, square in zip(weights, squares, strict=True)]
    variance = math.fsum(terms)
    scaled = [Sample(p.n, p.launches, p.mean, term, p.freedom) for p, term in zip(parts, terms, strict=True)]
    half = interval(scaled)
    freedom = freedom_of(scaled) if variance > 0 else math.nan
    return Estimate(
        share,
        share - half,
        share + half,
        n,
        launches,
        lambda truth: chance_above(share - truth, variance, freedom),
        lambda truth: chance_above(truth - share, variance, freedom),
    )


def _pooled(contrast: Contrast, comparison: Comparison) -> Estimate:
    """The mean of mean squares over that of the other side (or over 1): an F, or chi-squared over its freedom."""
    sides = [[_value(contrast, row, comparison.devices) for row in group] for group in comparison.groups]
    means = [math.fsum(values) / len(values) for values in sides]
    freedoms = [float(POOLED_FREEDOM * len(values)) for values in sides]
    ratio, own, other = (means[0], freedoms[0], math.inf) if len(sides) == 1 else (means[0] / means[1], *freedoms)

    def above(truth: float) -> float:
        return chance_of_ratio(ratio / truth, own, other)

    def below(truth: float) -> float:
        return 1 - above(truth)

    launches = min(len({row["launch_id"] for row in group}) for group in comparison.groups)
    low, high = (_where_it_is(above if rising else below, ratio, rising) for rising in (True, False))
    return Estimate(ratio, low, high, min(map(len, sides)), launches, above, below)


def _where_it_is(chance: Any, ratio: float, rising: bool) -> float:
    """The truth at which an estimate so far off has a chance of 2.5%, by bisection of its logarithm."""
    near, far = math.log(ratio), math.log(ratio) + (-5.0 if rising else 5.0)
    for _ in range(60):
        middle = (near + far) / 2
        near, far = (middle, far) if chance(math.exp(middle)) > 0.025 else (near, middle)
    return math.exp(near)
