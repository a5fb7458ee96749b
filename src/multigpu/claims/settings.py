"""The settings of a contrast among Records, each with its interval, how likely it holds or fails, and what the median step says."""

from __future__ import annotations

import numpy as np
import pandas as pd

from multigpu.claims.core import Contrast, Predicate
from multigpu.claims.pairs import Pairs, paired
from multigpu.claims.results import Setting
from multigpu.claims.rows import RATE_BY_MEDIAN, STEP_BY_MEDIAN, Rows, quantity
from multigpu.claims.statistics import estimates

BY_MEDIAN = {"units_per_s": RATE_BY_MEDIAN, "step_time_s": STEP_BY_MEDIAN}
TOLERATED = 0.01
"""How far two clocks may differ (on a log scale) without a meaning: a mean is no median."""


def settings_of(predicate: Predicate, contrast: Contrast, table: Rows) -> list[Setting]:
    """The settings of a contrast among these rows, measured; their verdicts are left open.

    Where it asks for the highest device count: of settings that differ in that alone, the highest that has enough data, else the highest.
    """
    pairs = None if table.frame.empty else paired(contrast, table)
    if pairs is None or pairs.settings.empty:
        return []
    found, median = pairs.settings.join(estimates(pairs)), _by_median(pairs)
    enough = found["n"].ge(predicate.min_n) & found["launches"].ge(predicate.min_launches)
    found = found.assign(enough=enough, by_median=median["estimate"], noisy=enough & host_noise(contrast, found, median))
    found["ceiling"] = _ceilings(pairs).where(enough)
    found[["holding", "failing"]] = found[["holding", "failing"]].where(enough & found["low"].notna())
    found = found[found["estimate"].notna()].astype({"n": int, "launches": int})
    if contrast.counts == "highest":
        found = found.sort_values(["enough", "devices"]).drop_duplicates("identity", keep="last")
    keys = pairs.records["key"].groupby(pairs.records["point"]).agg(list)
    settings = []
    for figures in found.astype(object).where(found.notna(), None).reset_index(names="row").to_dict("records"):
        fields, points = pairs.fields[figures["row"]], [figures[term] for term in range(len(contrast.terms))]
        settings.append(
            Setting(
                **{name: value for name, value in figures.items() if name in Setting.model_fields},
                framework=fields.get("framework", ""),
                contrast=contrast.label,
                fields={name: value if isinstance(value, int) else str(value) for name, value in fields.items()},
                verdict="inconclusive",
                record_keys=tuple(sorted({key for point in points for key in keys[point]})),
            )
        )
    return sorted(settings, key=lambda setting: (setting.devices, str(setting.fields)))


def host_noise(contrast: Contrast, wall: pd.DataFrame, median: pd.DataFrame) -> pd.Series:
    """Whether wall clock and median step differ by more than the narrower interval, and by more than the nearer is from the bound.

    Then what the clocks disagree about is as large as what the verdict rests on: steps of a waiting host, and not of the GPUs.
    """
    logs = [np.log(one["estimate"]) for one in (wall, median)]
    half = np.fmin(*(np.log(one["high"]) - log for one, log in zip((wall, median), logs, strict=True))).fillna(np.inf)
    bounds = [sign * np.log(contrast.bound) for sign in ((1, -1) if contrast.two_sided else (1,))]
    near = pd.concat([(log - bound).abs() for log in logs for bound in bounds], axis=1).min(axis=1)
    return (logs[0] - logs[1]).abs().gt(np.maximum(half.clip(lower=TOLERATED), near))


def _by_median(pairs: Pairs) -> pd.DataFrame:
    """Each setting by median steps; NaN where a Record has none, or the figure is no ratio of such."""
    name = BY_MEDIAN.get(pairs.contrast.quantity) if pairs.contrast.form == "ratio" else None
    if name is None:
        return pd.DataFrame(index=pairs.settings.index, columns=["estimate", "high"], dtype=float)
    return estimates(pairs._replace(records=pairs.records.assign(value=quantity(pairs.records, name))))


def _ceilings(pairs: Pairs) -> pd.Series:
    """Of a ratio of speedups the value if the Runs above scaled perfectly: the inverse of the efficiency of those below; NaN elsewhere."""
    contrast = pairs.contrast
    if contrast.direction != "above" or contrast.quantity != "units_per_s" or contrast.per_device or not contrast.of_speedups:
        return pd.Series(np.nan, index=pairs.settings.index)
    inverse = contrast.model_copy(update={"over": contrast.over[1:], "under": contrast.under[1:], "per_device": True})
    below = pairs.settings.rename(columns={0: "above", 1: 0, 2: "one above", 3: 1})
    top = estimates(pairs._replace(contrast=inverse, settings=below))["estimate"]
    return top.where(top >= 1)
