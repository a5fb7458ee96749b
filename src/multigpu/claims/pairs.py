"""Which Records a contrast compares: those of each term that are equal in every field that no term names, pooled once and paired once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from multigpu.analysis.compare import counterparts
from multigpu.claims.core import Contrast, Selection
from multigpu.claims.rows import CONTEXT, matches, plain, quantity, taken

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


def _numbered(table: pd.DataFrame, names: Iterable[Any]) -> np.ndarray:
    """For each row the number of its group, whose rows are equal in all of these columns."""
    columns = (getattr(table[name].array, "codes", table[name]) for name in names)  # codes: of categories
    together = np.column_stack([np.zeros(len(table)), *columns])
    return np.unique(together, axis=0, return_inverse=True)[1].reshape(-1)


def paired(contrast: Contrast, table: pd.DataFrame, value: pd.Series | None = None) -> Pairs:
    """Every setting of the rows in which all terms have Records; of those that differ in the version of the timer alone, the newest.

    A term's Runs vary in what terms name; terms of equal `select` take the same Runs, and all without a fixed device count the same count.

    value: of each row, what is compared (NaN: nothing); None: the contrast's quantity.
    """
    table = table.assign(value=quantity(table, contrast.quantity) if value is None else value)
    table = taken(table, table["value"].notna().to_numpy())
    names = [name for name in CONTEXT if not (contrast.paired and name in POOLED)]
    fixed, varied = [name for name in names if name not in contrast.varied], [name for name in names if name in contrast.varied]
    ids = table[["devices"]].astype("float64").assign(timer=table["timing_version"].astype("float64"))
    ids["fixed"] = _numbered(table, (name for name in fixed if name != "timing_version"))
    ids["variant"] = _numbered(table, varied)
    point = pd.Series(_numbered(ids, ["devices", "fixed", "variant", "timer"]), index=ids.index)
    points = ids.assign(point=point).drop_duplicates("point")
    selects, sides = list(dict.fromkeys(term.select for term in contrast.terms)), []
    for term in contrast.terms:
        own = points[matches(table, term.select)[points.index]].set_index("point")
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
    settings = settings.assign(identity=_numbered(settings, same), devices=settings["devices"].astype(int)).reset_index(drop=True)
    terms = [[term.select for term in contrast.terms].index(select) for select in selects]
    records = table.assign(point=point, like=_numbered(table, POOLED))
    records = records[point.isin(settings[[*range(len(contrast.terms))]].to_numpy().ravel())]
    ones = records.loc[~records["point"].duplicated(), ["point", *names]]
    first = dict(zip(ones.pop("point"), ones.to_dict("records"), strict=True))
    fields = [_fields([first[point] for point in own], fixed, varied) for own in settings[terms].itertuples(index=False)]
    return Pairs(contrast, settings, records, fields)


def _fields(sides: Sequence[dict[str, Any]], fixed: Sequence[str], varied: Iterable[str]) -> dict[str, Any]:
    """What a row of each side has in common, then what they differ in, joined."""
    own = {name: found for name in fixed if (found := plain(sides[0][name])) is not None}
    for name in sorted(varied):
        found = dict.fromkeys(plain(side[name]) for side in sides)
        own[name] = " / ".join(str(value) for value in found if value is not None)
    return own


def unmet(contrast: Contrast, table: pd.DataFrame) -> list[tuple[Selection, set[str]]]:
    """The Runs that a contrast lacks Records of: the fields that a term and the scope select, with device counts in words."""
    lacking, value = [], quantity(table, contrast.quantity)
    for term in contrast.terms:
        counts = (term.devices,) if term.devices else contrast.counts if isinstance(contrast.counts, tuple) else ()
        own = table["devices"].isin(counts) if counts else table["devices"].ge(contrast.count_at_least)
        own &= matches(table, term.select)
        if value[own].notna().any():
            continue
        statuses = sorted(set(table.loc[own, "status"]) - {"ok"})
        tried = f" (tried: {', '.join(statuses)})" if statuses else ""
        words = {str(count) + tried for count in counts} or {f"{contrast.count_at_least} or more{tried}"}
        lacking.append((contrast.where + term.select, words))
    return lacking
