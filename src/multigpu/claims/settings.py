"""One setting of a contrast: its interval, from the repeats of all sides, and the verdict of that interval."""

from __future__ import annotations

import math

from multigpu.analysis.statistics import Sample, interval, sample
from multigpu.claims.core import Contrast, Predicate, Setting, Verdict
from multigpu.claims.records import Comparison, Row, quantity
from multigpu.claims.wording import figure_of


def judge(contrast: Contrast, low: float, high: float) -> Verdict:
    """The verdict of one interval."""
    bound = contrast.bound
    if contrast.direction == "above":
        holds, fails = low >= bound, high < bound
    elif contrast.direction == "below":
        holds, fails = high <= bound, low > bound
    else:
        inside, outside = low >= 1 / bound and high <= bound, high < 1 / bound or low > bound
        holds, fails = (inside, outside) if contrast.direction == "within" else (outside, inside)
    return "holds" if holds else "does not hold" if fails else "inconclusive"


def measure(contrast: Contrast, comparison: Comparison, predicate: Predicate) -> Setting:
    """The interval of a contrast in one setting, and its verdict."""
    samples = _pairs if contrast.paired else _sides
    parts, estimate = samples(contrast, comparison)
    n, launches = min(part.n for part in parts), min(part.launches for part in parts)
    enough = n >= predicate.min_n and launches >= predicate.min_launches
    half = interval(parts)
    known = not math.isnan(half)
    low, high = math.exp(estimate - half), math.exp(estimate + half)
    setting = Setting(
        framework=comparison.fields.get("framework", ""),
        contrast=contrast.label,
        fields={name: value if isinstance(value, int) else str(value) for name, value in comparison.fields.items()},
        devices=comparison.devices,
        estimate=math.exp(estimate),
        low=low if known else None,
        high=high if known else None,
        n=n,
        launches=launches,
        enough=enough,
        verdict=judge(contrast, low, high) if enough and known else "inconclusive",
        text="",
        record_keys=tuple(sorted({row["key"] for group in comparison.groups for row in group})),
        flagged=sum(bool(row.get("flags")) for group in comparison.groups for row in group),
    )
    return setting.model_copy(update={"text": figure_of(setting, contrast)})


def common_repeats(comparison: Comparison) -> list[int]:
    """The repeats that all terms have."""
    return sorted(set.intersection(*({row["repeat"] for row in group} for group in comparison.groups)))


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
    groups = [{row["repeat"]: row for row in group} for group in comparison.groups]
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
