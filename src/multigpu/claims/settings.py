"""The settings of a contrast among Records, each with its interval, how likely it holds or fails, and what the median step says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from multigpu.claims.core import Contrast, Predicate
from multigpu.claims.pairs import RATE_BY_MEDIAN, STEP_BY_MEDIAN, Pairs, Rows, paired, quantity
from multigpu.claims.results import Setting
from multigpu.claims.rules import host_noise
from multigpu.claims.statistics import Estimate, chances, estimates
from multigpu.claims.wording import figure_of

BY_MEDIAN = {"units_per_s": RATE_BY_MEDIAN, "step_time_s": STEP_BY_MEDIAN}


def settings_of(predicate: Predicate, contrast: Contrast, table: Rows) -> list[Setting]:
    """The settings of a contrast among these rows, measured; their verdicts are left open.

    Where it asks for the highest device count: of settings that differ in that alone, the highest that has enough data, else the highest.
    """
    if table.frame.empty:
        return []
    pairs = paired(contrast, table)
    found = estimates(pairs)
    medians, ceilings = _by_median(pairs), _ceilings(pairs, found)
    flagged = pairs.records["flags"].ne("").groupby(pairs.records["point"]).sum()
    keys: dict[int, list[str]] = {}
    for point, key in zip(pairs.records["point"], pairs.records["key"], strict=True):
        keys.setdefault(point, []).append(key)
    best: dict[int, Setting] = {}
    for row, (place, estimate) in enumerate(zip(pairs.settings.to_dict("records"), found, strict=True)):
        if estimate is None:
            continue
        own = [place[term] for term in range(len(contrast.terms))]
        enough, known = estimate.n >= predicate.min_n and estimate.launches >= predicate.min_launches, not math.isnan(estimate.low)
        holding, failing = chances(contrast, estimate) if enough and known else (None, None)
        setting = Setting(
            framework=pairs.fields[row].get("framework", ""),
            contrast=contrast.label,
            fields={name: value if isinstance(value, int) else str(value) for name, value in pairs.fields[row].items()},
            devices=place["devices"],
            estimate=estimate.value,
            low=estimate.low if known else None,
            high=estimate.high if known else None,
            n=estimate.n,
            launches=estimate.launches,
            enough=enough,
            verdict="inconclusive",
            text="",
            record_keys=tuple(sorted({key for point in own for key in keys[point]})),
            flagged=int(sum(flagged[point] for point in own)),
            holding=holding,
            failing=failing,
            ceiling=ceilings[row] if enough else None,
        )
        setting = _watched(contrast, setting.model_copy(update={"text": figure_of(setting, contrast)}), medians[row])
        identity = place["identity"] if contrast.counts == "highest" else row
        held = best.get(identity)
        if held is None or (setting.enough, setting.devices) > (held.enough, held.devices):
            best[identity] = setting
    return sorted(best.values(), key=lambda setting: (setting.devices, str(setting.fields)))


def _by_median(pairs: Pairs) -> Sequence[Estimate | None]:
    """Each setting by median steps; None where a Record has none, or the figure is no ratio of such."""
    name = BY_MEDIAN.get(pairs.contrast.quantity) if pairs.contrast.form == "ratio" else None
    if name is None:
        return [None] * len(pairs.settings)
    found = estimates(pairs._replace(records=pairs.records.assign(value=quantity(pairs.records, name))))
    return [None if one is None or math.isnan(one.value) else one for one in found]


def _watched(contrast: Contrast, setting: Setting, median: Estimate | None) -> Setting:
    """The setting with its estimate by median steps, and whether the clocks disagree (`host_noise`)."""
    if median is None:
        return setting
    half = math.log(median.high / median.value) if median.high > 0 else math.inf
    noisy = setting.enough and host_noise(contrast, setting, median.value, half)
    return setting.model_copy(update={"by_median": median.value, "noisy": noisy})


def _ceilings(pairs: Pairs, found: Sequence[Estimate | None]) -> list[float | None]:
    """Of a ratio of speedups the value if the Runs above scaled perfectly: the inverse of the efficiency of those below; None elsewhere."""
    contrast = pairs.contrast
    if contrast.direction != "above" or contrast.quantity != "units_per_s" or contrast.per_device or not contrast.of_speedups:
        return [None] * len(found)
    one, many = contrast.over[1], contrast.under[1]
    inverse = contrast.model_copy(update={"over": (one,), "under": (many,), "per_device": True})
    below = pairs.settings.rename(columns={0: "above", 1: 0, 2: "one above", 3: 1})
    return [top.value if top and top.value >= 1 else None for top in estimates(pairs._replace(contrast=inverse, settings=below))]
