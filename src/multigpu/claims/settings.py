"""The settings of a contrast among Records, each with its interval, how likely it holds or fails, and what the median step says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from multigpu.claims.core import Contrast, Predicate
from multigpu.claims.pairs import Pairs, paired
from multigpu.claims.results import Setting
from multigpu.claims.rows import RATE_BY_MEDIAN, STEP_BY_MEDIAN, Rows, quantity
from multigpu.claims.statistics import Estimate, chances, estimates

BY_MEDIAN = {"units_per_s": RATE_BY_MEDIAN, "step_time_s": STEP_BY_MEDIAN}
TOLERATED = 0.01
"""How far two clocks may differ (on a log scale) without a meaning: a mean is no median."""


def settings_of(predicate: Predicate, contrast: Contrast, table: Rows) -> list[Setting]:
    """The settings of a contrast among these rows, measured; their verdicts are left open.

    Where it asks for the highest device count: of settings that differ in that alone, the highest that has enough data, else the highest.
    """
    if table.frame.empty:
        return []
    pairs = paired(contrast, table)
    keys = pairs.records["key"].groupby(pairs.records["point"]).agg(list)
    best: dict[int, Setting] = {}
    figures = zip(pairs.settings.to_dict("records"), pairs.fields, estimates(pairs), _by_median(pairs), _ceilings(pairs), strict=True)
    for row, (place, fields, estimate, median, ceiling) in enumerate(figures):
        if estimate is None:
            continue
        own = [place[term] for term in range(len(contrast.terms))]
        enough, known = estimate.n >= predicate.min_n and estimate.launches >= predicate.min_launches, not math.isnan(estimate.low)
        holding, failing = chances(contrast, estimate) if enough and known else (None, None)
        setting = Setting(
            framework=fields.get("framework", ""),
            contrast=contrast.label,
            fields={name: value if isinstance(value, int) else str(value) for name, value in fields.items()},
            devices=place["devices"],
            estimate=estimate.value,
            low=estimate.low if known else None,
            high=estimate.high if known else None,
            n=estimate.n,
            launches=estimate.launches,
            enough=enough,
            verdict="inconclusive",
            holding=holding,
            failing=failing,
            ceiling=ceiling if enough else None,
            record_keys=tuple(sorted({key for one in own for key in keys[one]})),
            by_median=median.value if median else None,
            noisy=enough and median is not None and host_noise(contrast, estimate, median),
        )
        identity = place["identity"] if contrast.counts == "highest" else row
        held = best.get(identity)
        if held is None or (setting.enough, setting.devices) > (held.enough, held.devices):
            best[identity] = setting
    return sorted(best.values(), key=lambda setting: (setting.devices, str(setting.fields)))


def host_noise(contrast: Contrast, wall: Estimate, median: Estimate) -> bool:
    """Whether wall clock and median step differ by more than the narrower interval, and by more than the nearer is from the bound.

    Then what the clocks disagree about is as large as what the verdict rests on: steps of a waiting host, and not of the GPUs.
    """
    logs = [math.log(one.value) for one in (wall, median)]
    halves = [math.log(one.high) - log if one.high > 0 else math.inf for one, log in zip((wall, median), logs, strict=True)]
    bounds = [sign * math.log(contrast.bound) for sign in ((1, -1) if contrast.two_sided else (1,))]
    gap = abs(logs[0] - logs[1])
    return gap > max(TOLERATED, min(halves)) and gap > min(abs(log - bound) for log in logs for bound in bounds)


def _by_median(pairs: Pairs) -> Sequence[Estimate | None]:
    """Each setting by median steps; None where a Record has none, or the figure is no ratio of such."""
    name = BY_MEDIAN.get(pairs.contrast.quantity) if pairs.contrast.form == "ratio" else None
    if name is None:
        return [None] * len(pairs.settings)
    found = estimates(pairs._replace(records=pairs.records.assign(value=quantity(pairs.records, name))))
    return [None if one is None or math.isnan(one.value) else one for one in found]


def _ceilings(pairs: Pairs) -> Sequence[float | None]:
    """Of a ratio of speedups the value if the Runs above scaled perfectly: the inverse of the efficiency of those below; None elsewhere."""
    contrast = pairs.contrast
    if contrast.direction != "above" or contrast.quantity != "units_per_s" or contrast.per_device or not contrast.of_speedups:
        return [None] * len(pairs.settings)
    inverse = contrast.model_copy(update={"over": contrast.over[1:], "under": contrast.under[1:], "per_device": True})
    below = pairs.settings.rename(columns={0: "above", 1: 0, 2: "one above", 3: 1})
    return [top.value if top and top.value >= 1 else None for top in estimates(pairs._replace(contrast=inverse, settings=below))]
