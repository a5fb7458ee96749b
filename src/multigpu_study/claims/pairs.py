"""Pair the rows that a contrast compares, by the fields that both sides have in common."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from multigpu.analysis.compare import counterparts
from multigpu.analysis.points import where
from multigpu_study.claims.core import Contrast
from multigpu_study.claims.rows import CONTEXT, FIGURES, POOLED, plain, quantity


class Pairs(NamedTuple):
    """The pairs of rows that a contrast compares. settings: a row each, with `devices`, `identity`
    (settings of one differ in the device count alone) and, under the number of each term, a point.
    records: FIGURES of all points, with their `point` and the `value` that is compared. fields: by
    setting, what tells it from
    others: what all its terms have in common, then what they differ in, joined.
    """

    contrast: Contrast
    settings: pd.DataFrame
    records: pd.DataFrame
    fields: Sequence[dict[str, Any]]


def _numbered(table: pd.DataFrame, names: Iterable[Any]) -> np.ndarray:
    """For each row the number of its group, whose rows are equal in all of these columns."""
    # codes: of categories
    columns = (getattr(table[name].array, "codes", table[name]) for name in names)
    together = np.column_stack([np.zeros(len(table)), *columns])
    return np.unique(together, axis=0, return_inverse=True)[1].reshape(-1)


def paired(contrast: Contrast, table: pd.DataFrame) -> Pairs:
    """Every setting of the rows in which all terms have Records; of those that differ in the
    version of the timer alone, the newest. A term's Runs vary in what terms name; terms of equal
    `select` take the same Runs, and all without a fixed device count the same count.
    """
    table = (
        table.assign(value=quantity(table, contrast.quantity))
        .dropna(subset="value")
        .reset_index(drop=True)
    )
    names = [name for name in CONTEXT if not (contrast.paired and name in POOLED)]
    varied = [name for name in names if name in contrast.varied]
    # of others no Record has any
    fixed = [
        name for name in names if name not in contrast.varied and len(table[name].cat.categories)
    ]
    ids = (
        table[["devices"]].astype("float64").assign(timer=table["timing_version"].astype("float64"))
    )
    ids["fixed"] = _numbered(table, (name for name in fixed if name != "timing_version"))
    ids["variant"] = _numbered(table, varied)
    point = pd.Series(_numbered(ids, ["devices", "fixed", "variant", "timer"]), index=ids.index)
    points = ids.assign(point=point).drop_duplicates("point")
    selects, sides = list(dict.fromkeys(term.select for term in contrast.terms)), []
    for term in contrast.terms:
        select = dict(term.select)
        own = points.loc[where(table.loc[points.index, [*select]], **select).index].set_index(
            "point"
        )
        own = own.rename(columns={"variant": f"variant {selects.index(term.select)}"})
        sides.append(
            own[own["devices"].eq(term.devices)].drop(columns="devices") if term.devices else own
        )
    settings = counterparts(sides)
    counts = {term.devices for term in contrast.terms if term.devices}
    if "devices" in settings:
        if isinstance(contrast.counts, tuple):
            known: pd.Series | bool = settings["devices"].isin(contrast.counts)
        else:
            known = True
        settings = settings[
            settings["devices"].ge(contrast.count_at_least)
            & ~settings["devices"].isin(counts)
            & known
        ]
    else:
        settings = settings.assign(devices=max(counts))
    same = ["fixed", *(f"variant {number}" for number in range(len(selects)))]
    settings = settings.sort_values(["devices", "timer"], kind="stable").drop_duplicates(
        [*same, "devices"], keep="last"
    )
    settings = settings.assign(
        identity=_numbered(settings, same), devices=settings["devices"].astype(int)
    ).reset_index(drop=True)
    terms = [[term.select for term in contrast.terms].index(select) for select in selects]
    told = point.isin(settings[[*range(len(contrast.terms))]].to_numpy().ravel())
    records = table[[*FIGURES, "value"]].assign(point=point, like=_numbered(table, POOLED))[told]
    first = (
        table[[*fixed, *varied]][told & ~point.duplicated()]
        .set_axis(point[told].unique())
        .to_dict("index")
    )
    fields = [
        _fields([first[point] for point in own], fixed, varied)
        for own in settings[terms].itertuples(index=False)
    ]
    return Pairs(contrast, settings, records, fields)


def _fields(
    sides: Sequence[dict[Any, Any]], fixed: Sequence[str], varied: Iterable[str]
) -> dict[str, Any]:
    """Return the fields that a row of each side has in common, then what they differ in, joined."""
    common = {name: found for name in fixed if (found := plain(sides[0][name])) is not None}
    own = {name: found if isinstance(found, int) else str(found) for name, found in common.items()}
    for name in sorted(varied):
        found = dict.fromkeys(plain(side[name]) for side in sides)
        own[name] = " / ".join(str(value) for value in found if value is not None)
    return own
