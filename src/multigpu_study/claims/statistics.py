"""The settings of a contrast among Records, each with its interval, how likely it holds or fails,
and what the median step says. A ratio is what `boots.contrast` makes of points, as `compare.versus`
does. Three forms are no ratio of points' means: repeats that began alike, a share of differences,
and mean squares. They use the same pairs.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy import special

from multigpu.analysis import boots
from multigpu.analysis.boots import FORMS, contrasts, samples
from multigpu.analysis.statistics import chance_above, chance_of_ratio, half_width
from multigpu_study.claims.core import LEVEL, POOLED_FREEDOM, Contrast, Predicate
from multigpu_study.claims.pairs import Pairs, paired
from multigpu_study.claims.results import Setting
from multigpu_study.claims.rows import quantity

POWER = 0.8  # the chance of a decision that is asked for
MOST_REPEATS = 1000
TOLERATED = 0.01
"""How far two clocks may differ (on a log scale) without a meaning: a mean is no median."""


def _figures(
    contrast: Contrast, estimate: Any, low: Any, high: Any, chance: Callable[[float], Sequence[Any]]
) -> pd.DataFrame:
    """Estimates with their intervals, and the one-sided p-values `holding` and `failing`; chance:
    of so large and so small an estimate.
    """
    over, under = chance(contrast.bound)
    if len(contrast.bounds) > 1:
        above, below = chance(1 / contrast.bound)
        over, under = np.maximum(above, under), np.minimum(below, over)
    holding, failing = (over, under) if contrast.direction in ("above", "within") else (under, over)
    return pd.DataFrame(
        {"estimate": estimate, "low": low, "high": high, "holding": holding, "failing": failing}
    )


def student(
    contrast: Contrast, middle: pd.Series, variance: pd.Series, freedom: pd.Series, log: bool = True
) -> pd.DataFrame:
    """Means with their variances (NaN: of one repeat), by Student's t; log: of logarithms."""
    half = half_width(variance, freedom.fillna(1.0))
    estimate, low, high = (
        np.exp(end) if log else end for end in (middle, middle - half, middle + half)
    )

    def chance(truth: float) -> list[Any]:
        excess = middle - (np.log(truth) if log else truth)
        return [chance_above(sign * excess, variance, freedom) for sign in (1, -1)]

    return _figures(contrast, estimate, low, high, chance)


def _sampled(
    values: pd.Series, groups: pd.Series, launch: pd.Series, boot: pd.Series, forms: pd.Series
) -> pd.DataFrame:
    """By group: the values' sample, geometric mean (`rate`), mean, n and launches."""
    each = values.groupby(groups)
    return pd.DataFrame(
        {
            "sample": samples(values, groups, launch, boot, forms),
            "rate": np.exp(np.log(values).groupby(groups).mean()),
            "mean": each.mean(),
            "n": each.size(),
            "launches": launch.groupby(groups).nunique(),
        }
    )


def _sides(pairs: Pairs) -> list[pd.DataFrame]:
    """The pooled points of each term, a row a setting: sample, rate (the geometric mean), mean, n,
    launches. What is no time and no rate has no form that a boot could slow.
    """
    records, timed = pairs.records, pairs.contrast.quantity.endswith("_s")
    forms = records["execution"].astype(object).map(lambda one: FORMS.get(one, "") if timed else "")
    points = _sampled(
        records["value"],
        records["point"],
        records["launch_id"].astype(object),
        records["boot"].astype(object).where(forms.ne(""), ""),
        forms,
    )
    found = []
    for number, term in enumerate(pairs.contrast.terms):
        side = points.loc[pairs.settings[number]].reset_index(drop=True)
        if pairs.contrast.per_device:
            devices = pairs.settings["devices"] * 0 + (term.devices or pairs.settings["devices"])
            scaled = [one.scaled(1 / n) for one, n in zip(side["sample"], devices, strict=True)]
            side = side.assign(rate=side["rate"] / devices, sample=pd.Series(scaled, dtype=object))
        found.append(side)
    return found


def paired_ratio(pairs: Pairs) -> pd.DataFrame:
    """As one side: the geometric mean of the ratios of repeats that all terms have, by number,
    machine and version; NaN without any.
    """
    own = pairs.records[["point", "like", "repeat", "value", "launch_id"]].drop_duplicates(
        ["point", "like", "repeat"], keep="last"
    )
    table = pairs.settings.reset_index(names="setting").assign(logs=0.0, launches="")
    for number, term in enumerate(pairs.contrast.terms):
        table = table.merge(own.rename(columns={"point": number}))
        logs = np.log(table.pop("value")) - (
            np.log(term.devices or table["devices"]) if pairs.contrast.per_device else 0.0
        )
        table["logs"] += logs if number < len(pairs.contrast.over) else -logs
        table["launches"] += table.pop("launch_id").astype(str) + " "
    nothing = pd.Series("", index=table.index)
    return _sampled(
        np.exp(table["logs"]), table["setting"], table["launches"], nothing, nothing
    ).reindex(pairs.settings.index)


def share(contrast: Contrast, sides: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """1 - (third - fourth) / (first - second) of the terms' means; variances by the delta method.
    Where the second has as much as the first there is no share: 0, without an interval.
    """
    first, second, third, fourth = (side["rate"] for side in sides)
    added = (first - second).replace(0.0, np.nan)
    left = (third - fourth) / added
    slopes = pd.concat(
        [left / added * first, -left / added * second, -third / added, fourth / added], axis=1
    )
    found = pd.DataFrame(
        [
            boots.contrast(points, tuple(weights))
            for points, weights in zip(
                zip(*(side["sample"] for side in sides), strict=True),
                slopes.to_numpy().tolist(),
                strict=True,
            )
        ],
        index=slopes.index,
    )
    variance = found["variance"].where(added.notna())
    return student(contrast, (1 - left).fillna(0.0), variance, found["freedom"], log=False)


def pooled(contrast: Contrast, sides: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Ratio of mean squares (or their mean over 1): an F, or chi-squared over its freedom."""
    value, own, other = sides[0]["mean"], POOLED_FREEDOM * sides[0]["n"], cast(Any, np.inf)
    if len(sides) > 1:
        value, other = value / sides[1]["mean"], POOLED_FREEDOM * sides[1]["n"]
    ends = (
        special.fdtri(own, other, 1 - p) if len(sides) > 1 else special.chdtri(own, p) / own
        for p in (LEVEL, 1 - LEVEL)
    )
    low, high = (value / end for end in ends)
    return _figures(
        contrast,
        value,
        low,
        high,
        lambda truth: ((chance := chance_of_ratio(value / truth, own, other)), 1 - chance),
    )


def estimates(pairs: Pairs) -> pd.DataFrame:
    """The figure of each setting: estimate (NaN where it has none), low, high (95%; NaN: of one
    repeat), holding, failing, n, launches.
    """
    contrast = pairs.contrast
    sides = [paired_ratio(pairs)] if contrast.paired else _sides(pairs)
    least = pd.concat([side[["n", "launches"]] for side in sides]).groupby(level=0).min()
    if contrast.form != "ratio":
        return {"share": share, "pooled": pooled}[contrast.form](contrast, sides).join(least)
    table = contrasts(
        *(
            [side["sample"] for side in own]
            for own in (sides[: len(contrast.over)], sides[len(contrast.over) :])
        )
    )
    return student(contrast, table["value"], table["variance"], table["freedom"]).join(least)


def settings_of(predicate: Predicate, contrast: Contrast, table: pd.DataFrame) -> list[Setting]:
    """The settings of a contrast among these rows, measured; their verdicts are left open. Where it
    asks for the highest device count: of settings that differ in that alone, the highest that has
        enough data, else the highest.
    """
    if table.empty or (pairs := paired(contrast, table)).settings.empty:
        return []
    figures = estimates(pairs)
    found = pairs.settings.join(figures).join(_by_median(pairs, figures))
    enough = found["n"].ge(predicate.min_n) & found["launches"].ge(predicate.min_launches)
    found = found.assign(
        enough=enough, noisy=found["noisy"] & enough, ceiling=_ceilings(pairs).where(enough)
    )
    found[["holding", "failing"]] = found[["holding", "failing"]].where(
        enough & found["low"].notna()
    )
    found = found[found["estimate"].notna()].astype({"n": int, "launches": int})
    if contrast.counts == "highest":
        found = found.sort_values(["enough", "devices"]).drop_duplicates("identity", keep="last")
    keys = pairs.records.groupby("point")["key"].agg(set)
    settings = []
    found = found.astype(object).where(found.notna(), None)
    for row, one in zip(found.index, found.to_dict("records"), strict=True):
        fields, points = pairs.fields[row], {one[term] for term in range(len(contrast.terms))}
        own: dict[str, Any] = {
            name: value for name, value in one.items() if name in Setting.model_fields
        }
        own["framework"] = fields.get("framework", "")
        own["record_keys"] = sorted(set().union(*(keys[point] for point in points)))
        settings.append(
            Setting(contrast=contrast.label, fields=fields, verdict="inconclusive", **own)
        )
    return sorted(settings, key=lambda setting: (setting.devices, str(setting.fields)))


def _by_median(pairs: Pairs, wall: pd.DataFrame) -> pd.DataFrame:
    """Each setting by median steps (NaN where a Record has none, or the figure is no ratio of
    such), and whether it is noisy: the clocks differ by more than the narrower interval, and by
    more than the nearer is from the bound. Then what the clocks disagree about is as large as what
    the verdict rests on: steps of a waiting host, and not of the GPUs. TensorFlow has no median: it
    offers no events between steps, which end when they are dispatched.
    """
    contrast, records = pairs.contrast, pairs.records
    rate, step, median = (
        quantity(records, name) for name in ("units_per_s", "step_time_s", "median_step_s")
    )
    found = {"step_time_s": median.where(rate.gt(0)), "units_per_s": rate * step / median}.get(
        contrast.quantity, median * np.nan
    )
    value = found.where(records["framework"].ne("tensorflow"))
    known = contrast.form == "ratio" and value.notna().any()
    if known:
        other = estimates(pairs._replace(records=records.assign(value=value)))
    else:
        other = wall.assign(estimate=np.nan)
    logs = [np.log(one["estimate"]) for one in (wall, other)]
    half = np.fmin(
        *(np.log(one["high"]) - log for one, log in zip((wall, other), logs, strict=True))
    ).fillna(np.inf)
    near = pd.concat(
        [(log - np.log(bound)).abs() for log in logs for bound in contrast.bounds], axis=1
    ).min(axis=1)
    return pd.DataFrame(
        {
            "by_median": other["estimate"],
            "noisy": (logs[0] - logs[1]).abs().gt(np.maximum(half.clip(lower=TOLERATED), near)),
        }
    )


def _ceilings(pairs: Pairs) -> pd.Series:
    """Of a ratio of speedups the value if the Runs above scaled perfectly: the inverse of the
    efficiency of those below; NaN elsewhere.
    """
    contrast, terms = pairs.contrast, pairs.contrast.terms
    selects, devices = [term.select for term in terms], [term.devices for term in terms]
    of_speedups = (
        len(contrast.over) == 2 and selects[:2] == selects[2:] and devices == [None, 1, 1, None]
    )
    if (
        contrast.direction != "above"
        or contrast.quantity != "units_per_s"
        or contrast.per_device
        or not of_speedups
    ):
        return pd.Series(np.nan, index=pairs.settings.index)
    _, one, _, several = _sides(
        pairs._replace(contrast=contrast.model_copy(update={"per_device": True}))
    )
    top = one["rate"] / several["rate"]
    return top.where(top >= 1)


def repeats_needed(contrast: Contrast, setting: Setting, looks: int = 1) -> int | None:
    """Repeats of each side that decide a setting with a chance of 80%, among so many looks; None:
    over 1,000, no interval or no ratio.
    """
    if (
        contrast.form != "ratio"
        or setting.low is None
        or setting.high is None
        or min(setting.low, setting.estimate) <= 0
        or setting.n < 2
    ):
        return None
    half = math.log(setting.high / setting.low) / 2
    # of one repeat
    error = half / float(special.stdtrit(setting.n - 1, 1 - LEVEL)) * math.sqrt(setting.n)
    gap = min(abs(math.log(setting.estimate / bound)) for bound in contrast.bounds)
    n = np.arange(setting.n, MOST_REPEATS)
    reach = special.stdtrit(n - 1, 1 - LEVEL / looks) + special.stdtrit(n - 1, POWER)
    deciding = n[gap >= reach * error / np.sqrt(n)]
    return int(deciding[0]) if deciding.size else None
