"""Which Records a contrast compares: those of each term that are equal in every field that no term names, pooled once and paired once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from multigpu.analysis.compare import counterparts
from multigpu.claims.core import Contrast, Selection
from multigpu.claims.rows import CONTEXT, Rows, quantity

POOLED = ("machine", "gpu", "framework_version")
"""What may differ between pairs of repeats, each of which is of one machine and version."""


class Pairs(NamedTuple):
    """What a contrast compares.

    settings: a row each, with `devices`, `identity` (settings of one differ in the device count alone) and, under the number of each term,
        a point. records: those of all points, with their `point` and the `value` that is compared. fields: by setting, what tells it from
        others: what all its terms have in common, then what they differ in, joined.
    """

    contrast: Contrast
    settings: pd.DataFrame
    records: pd.DataFrame
    fields: Sequence[dict[str, Any]]


def _numbered(codes: pd.DataFrame) -> np.ndarray:
    """For each row of codes the number of its group, all of which are equal."""
    return np.unique(codes.to_numpy(), axis=0, return_inverse=True)[1].reshape(-1) if codes.size else np.zeros(len(codes), dtype=int)


def paired(contrast: Contrast, table: Rows, value: pd.Series | None = None) -> Pairs:
    """Every setting of the rows in which all terms have Records; of those that differ in the version of the timer alone, the newest.

    A term's Runs vary in what terms name; terms of equal `select` take the same Runs, and all without a fixed device count the same count.

    value: of each row, what is compared (NaN: nothing); None: the contrast's quantity.
    """
    value = quantity(table.frame, contrast.quantity) if value is None else value
    table, value = table.take(value.notna().to_numpy()), value[value.notna()].reset_index(drop=True)
    names = [name for name in CONTEXT if not (contrast.paired and name in POOLED)]
    fixed, varied = [name for name in names if name not in contrast.varied], [name for name in names if name in contrast.varied]
    ids = table.frame[["devices"]].astype("float64")
    ids["fixed"] = _numbered(table.codes[[name for name in fixed if name != "timing_version"]])
    ids["variant"], ids["timer"] = _numbered(table.codes[varied]), table.frame["timing_version"].astype("float64")
    point = pd.Series(_numbered(ids), index=ids.index)
    points = ids.assign(point=point).drop_duplicates("point")
    selects, sides = list(dict.fromkeys(term.select for term in contrast.terms)), []
    for term in contrast.terms:
        own = points[table.matches(term.select)[points.index]].set_index("point")
        own = own.rename(columns={"variant": f"variant {selects.index(term.select)}"})
        sides.append(own[own["devices"].eq(term.devices)].drop(columns="devices") if term.devices else own)
    settings, counts = counterparts(sides), {term.devices for term in contrast.terms if term.devices}
    if "devices" in settings:
        known = settings["devices"].isin(contrast.counts) if isinstance(contrast.counts, tuple) else True
        settings = settings[settings["devices"].ge(contrast.count_at_least) & ~settings["devices"].isin(counts) & known]
    else:
        settings = settings.assign(devices=max(counts))
    same = ["fixed", *(f"variant {number}" for number in range(len(selects)))]
    settings = settings.sort_values(["devices", "timer"], kind="stable").drop_duplicates([*same, "devices"], keep="last")
    settings = settings.assign(identity=_numbered(settings[same]), devices=settings["devices"].astype(int)).reset_index(drop=True)
    first = pd.Series(points.index, index=points["point"])
    terms = [[term.select for term in contrast.terms].index(select) for select in selects]
    fields = [_fields(table, [first[point] for point in own], fixed, varied) for own in settings[terms].itertuples(index=False)]
    records = table.frame.assign(point=point, value=value, like=_numbered(table.codes[list(POOLED)]))
    return Pairs(contrast, settings, records[point.isin(settings[[*range(len(contrast.terms))]].to_numpy().ravel())], fields)


def _fields(table: Rows, sides: Sequence[int], fixed: Sequence[str], varied: Iterable[str]) -> dict[str, Any]:
    """What the rows have in common, then what they differ in, joined; sides: a row of each side."""
    first, *_ = known = [dict(zip(table.codes, codes, strict=True)) for codes in table.codes.to_numpy()[list(sides)]]
    own = {name: found for name in fixed if (found := table.values[name][first[name]]) is not None}
    for name in sorted(varied):
        found = dict.fromkeys(table.values[name][side[name]] for side in known)
        own[name] = " / ".join(str(value) for value in found if value is not None)
    return own


def unmet(contrast: Contrast, table: Rows) -> dict[Selection, set[str]]:
    """The Runs that a contrast lacks Records of: device counts, in words, by the fields its terms and its scope select."""
    lacking: dict[Selection, set[str]] = {}
    for term in contrast.terms:
        counts = (term.devices,) if term.devices else contrast.counts if isinstance(contrast.counts, tuple) else ()
        own = table.frame[table.matches(term.select)]
        own = own[own["devices"].isin(counts) if counts else own["devices"].ge(contrast.count_at_least)]
        if quantity(own, contrast.quantity).notna().any():
            continue
        statuses = sorted(set(own["status"]) - {"ok"})
        tried = f" (tried: {', '.join(statuses)})" if statuses else ""
        words = {str(count) + tried for count in counts} or {f"{contrast.count_at_least} or more{tried}"}
        lacking.setdefault(contrast.where + term.select, set()).update(words)
    return lacking
