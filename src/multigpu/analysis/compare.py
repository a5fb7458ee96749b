"""Points beside points: pairs that differ in named fields alone, baselines of scaling, what an
interval says; rows put together.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from multigpu.analysis.boots import contrasts
from multigpu.analysis.fields import FASTER_KERNELS, FOLLOWS, JOB, POINT, SENDING, columns
from multigpu.analysis.points import where
from multigpu.analysis.reach import BEYOND, reach
from multigpu.analysis.statistics import half_width
from multigpu.records.record import Record

FASTER, SLOWER, EQUAL, SINGLE = "faster", "slower", "not told apart", "single run"
"""What an interval of a ratio says. One that holds 1 tells how large a difference may be."""

TOLD = tuple(columns("counterpart"))
"""What `versus` tells of a counterpart, as `base_<name>`."""

SINGLE_MARGIN = 1.05
"""From this ratio on a single run, without an interval, counts as faster, and is said to be one."""

_SAMPLE = ["rate", "sample", "keys"]


def versus(
    own: pd.DataFrame, base: pd.DataFrame, but: Sequence[str] = ("placement",), name: str = "ratio"
) -> pd.DataFrame:
    """Each measured point of `own` beside the one of `base` that equals it in every field but those
    of `but` (and what follows from them). Returns `own`'s columns; <name>, the rate over base's,
    with _low and _high (95%, paired within boots: `boots.contrast`; NaN: a single run);
    base_<field> of `but` and `TOLD`; verdict. ValueError: a point has several counterparts; the
    sentence says in what they differ.
    """
    free = {*but, *(more for field in but for more in FOLLOWS.get(field, ()))}
    on = [field for field in POINT if field not in free]
    own, base = (side[side["n"] > 0].reset_index(drop=True) for side in (own, base))
    carried = dict.fromkeys([*(field for field in POINT if field in free), *TOLD])
    rows = equal_rows(own, base, on)
    if (again := rows[0].duplicated()).any():
        clash = base.loc[rows.loc[rows[0].eq(rows.loc[again, 0].iloc[0]), 1]]
        differ = [
            field for field in free if field in clash and clash[field].nunique(dropna=False) > 1
        ]
        raise ValueError(
            f"{len(clash)} points of the base match one point and differ in"
            f" {', '.join(differ) or 'nothing'}: narrow the base"
        )
    own, base = (
        side.reindex(rows[number]).reset_index(drop=True) for number, side in enumerate((own, base))
    )
    table = pd.concat(
        [own, base[list(carried)].add_prefix("base_"), ratio_columns(own, base, name)], axis=1
    )
    return table.assign(verdict=verdict(table, name))


def equal_rows(
    own: pd.DataFrame,
    base: pd.DataFrame,
    on: Sequence[str],
    how: Literal["inner", "left"] = "inner",
) -> pd.DataFrame:
    """`counterparts` of two tables by many columns: under 0 and 1 the places of rows that equal
    each other in all of `on`.
    """
    number = (
        pd.concat([own[on], base[on]])
        .groupby(list(on), sort=False, dropna=False)
        .ngroup()
        .to_numpy()
    )
    return counterparts(
        [pd.DataFrame({"number": part}) for part in np.split(number, [len(own)])], how
    )


def counterparts(
    sides: Sequence[pd.DataFrame], how: Literal["inner", "left"] = "inner"
) -> pd.DataFrame:
    """The rows of several tables that equal each other in all columns they share: these, and under
    each table's number its row's label.
    """
    placed = [side.reset_index(names=number) for number, side in enumerate(sides)]
    return functools.reduce(lambda left, right: left.merge(right, how=how), placed)


def ratio_columns(own: pd.DataFrame, base: pd.DataFrame | pd.Series, name: str) -> pd.DataFrame:
    """<name>, <name>_low and <name>_high of rates row by row, of equal index or over one row; 1
    exactly where both are the same Records.
    """
    if isinstance(base, pd.Series):
        base = pd.DataFrame({name: [base[name]] * len(own) for name in _SAMPLE}, index=own.index)
    found = contrasts([own["sample"]], [base["sample"]])
    ratio, half = np.exp(found["value"]), np.exp(half_width(found["variance"], found["freedom"]))
    table = pd.DataFrame({name: ratio, f"{name}_low": ratio / half, f"{name}_high": ratio * half})
    table[own["keys"].eq(base["keys"]).fillna(False)] = 1.0
    return table


def verdict(table: pd.DataFrame, name: str = "ratio") -> pd.Series:
    """Decide by each row's interval what holds of its ratio: faster, slower, not told apart, single
    run; "" without a ratio.
    """
    ratio, low, high = (table[f"{name}{end}"] for end in ("", "_low", "_high"))
    says = np.select(
        [ratio.isna(), low.isna(), low > 1, high < 1], ["", SINGLE, FASTER, SLOWER], EQUAL
    )
    return pd.Series(says, index=table.index, dtype="string")


Kernels = frozenset[tuple[str, str]]
"""The faster kernels that a point uses, as pairs of a field and its value (`FASTER_KERNELS`)."""


def kernels_of(points: pd.DataFrame) -> list[Kernels]:
    """Return which faster kernels each point uses."""
    used: list[set[tuple[str, str]]] = [set() for _ in range(len(points))]
    for field, values in FASTER_KERNELS.items():
        for value in values:
            for place in np.flatnonzero(points[field].eq(value).fillna(False)):
                used[place].add((field, value))
    return [frozenset(pairs) for pairs in used]


def best_single(
    points: pd.DataFrame, form: Sequence[str] = ("execution",), kernels: Kernels = frozenset()
) -> pd.DataFrame:
    """Return one GPU at its best: of each job and `form` the fastest point on one device, of those
    with an interval where there are any; one of few repeats, which may be lucky, only where it is
    faster than a headline's by more than `SINGLE_MARGIN`.

    kernels: only points that use all of these count. A baseline without the kernels of the point
        beside it would credit them to the further devices.
    """
    ones = points[(points["n"] > 0) & points["devices"].eq(1)]
    # an empty list would be taken for names of columns, none of them
    ones = ones[np.array([kernels <= used for used in kernels_of(ones)], dtype=bool)]
    often = ones["rate"] * np.where(ones["tier"].eq("headline"), SINGLE_MARGIN, 1.0)
    ones = ones.assign(_first=ones["rate_low"].notna(), _rate=often)
    ordered = ones.sort_values(["_first", "_rate"], ascending=False, kind="stable")
    return ordered.drop_duplicates([*JOB, *form]).drop(columns=["_first", "_rate"]).sort_index()


def _beside(points: pd.DataFrame, base: pd.DataFrame, on: Sequence[str]) -> pd.DataFrame:
    """Return the sample of the base's row that equals each point in the columns `on`."""
    places = equal_rows(points, base, on, "left")[1]
    return base[_SAMPLE].reset_index(drop=True).reindex(places).reset_index(drop=True)


def _like_singles(points: pd.DataFrame) -> pd.DataFrame:
    """Return for each point the sample of one GPU at its best with at least the point's kernels."""
    used = kernels_of(points)
    side = pd.DataFrame(index=points.index, columns=_SAMPLE).astype(points[_SAMPLE].dtypes)
    for kernels in set(used):
        own = [place for place, pairs in enumerate(used) if pairs == kernels]
        rows = points.iloc[own].reset_index(drop=True)
        base = best_single(points, kernels=kernels)
        sample = _beside(rows, base, [*JOB, "execution"])
        side.iloc[own] = sample.set_axis(points.index[own]).astype(side.dtypes)
    return side


def scaling(points: pd.DataFrame) -> pd.DataFrame:
    """Put three baselines beside each point, every ratio with `_low` and `_high` (95%), NaN where a
    baseline was not measured, or an efficiency is beyond `reach`.

    speedup_best, efficiency_best: over one GPU at its best (`best_single`) among those that use at
        least the same kernels, whose rate is best_single_rate.
    speedup_like, like: as speedup_best, and "one GPU"; where no GPU alone was measured with these
        kernels, the number of devices times `of_independent`, and "independent replicas".
    speedup_same, efficiency_same: over the same placement on one device, as the documents do; weak
        and strong scaling are the same there.
    of_independent: over independent replicas on as many devices, done the same way but for how
        gradients travel (`SENDING`): what merging and moving cost on this host.
    """
    points = points.reset_index(drop=True)
    ok, series = points[points["n"] > 0], [field for field in POINT if field != "devices"]
    ones = ok[ok["devices"].eq(1)]
    # where only weak or only strong scaling was measured on one device, it serves for both
    both = [
        ones,
        *(
            ones.assign(scaling=pd.Series(kind, index=ones.index, dtype="string"))
            for kind in ("weak", "strong")
        ),
    ]
    found = {
        "speedup_same": (pd.concat(both).drop_duplicates(series), series),
        "of_independent": (
            ok[ok["placement"].eq("independent")],
            [field for field in POINT if field not in ("placement", *SENDING)],
        ),
    }
    best = _like_singles(points)
    parts = [points, ratio_columns(points, best, "speedup_best")]
    parts.append(best[["rate"]].rename(columns={"rate": "best_single_rate"}))
    for name, (base, on) in found.items():
        parts.append(ratio_columns(points, _beside(points, base, on), name))
    table = pd.concat(parts, axis=1)
    alone = table["speedup_best"].notna()
    replicas = ~alone & table["of_independent"].notna()
    like = np.select([alone, replicas], ["one GPU", "independent replicas"], "")
    table["like"] = pd.Series(like, table.index, dtype="string")
    for end in ("", "_low", "_high"):
        by_replicas = table[f"of_independent{end}"] * table["devices"]
        table[f"speedup_like{end}"] = table[f"speedup_best{end}"].where(alone, by_replicas)
    for name in ("best", "same", "like"):
        for end in ("", "_low", "_high"):
            table[f"efficiency_{name}{end}"] = table[f"speedup_{name}{end}"] / table["devices"]
        low = f"efficiency_{name}_low"
        for place, row in table[table[low].gt(BEYOND)].iterrows():
            if row[low] > BEYOND * reach(row, same=name == "same"):
                table.loc[place, [f"efficiency_{name}{end}" for end in ENDS]] = np.nan
    return table


ENDS = ("", "_low", "_high")


def _bounded(rows: pd.DataFrame, columns: Mapping[str, str]) -> dict[str, pd.Series]:
    return {
        f"{new}{end}": rows[f"{old}{end}"]
        for new, old in columns.items()
        for end in ENDS
        if f"{old}{end}" in rows
    }


def also(rows: pd.DataFrame, **columns: str) -> pd.DataFrame:
    """The rows with columns under further names: `also(rows, share="efficiency_same")`."""
    return rows.assign(**_bounded(rows, columns))


def beside(
    rows: pd.DataFrame, other: pd.DataFrame, on: Sequence[str], **columns: str
) -> pd.DataFrame:
    """The rows with columns of the one row of `other` that equals each in `on`: new name = its name
    there; empty where there is none.
    """
    taken = other[list(on)].assign(**_bounded(other, columns))
    return rows.merge(taken, how="left", on=list(on), validate="m:1")


def stacked(name: str, parts: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Parts one below the other, the column `name` saying which each row is of."""
    return pd.concat(
        [rows.assign(**{name: said}) for said, rows in parts.items()], ignore_index=True
    )


def compared(
    rows: pd.DataFrame, but: Sequence[str] = (), name: str = "ratio", **fields: tuple[Any, Any]
) -> pd.DataFrame:
    """Points beside each other (`versus`): the first value of each field over the second:
    `execution=("captured", "eager")`.
    """
    own, base = ({field: values[side] for field, values in fields.items()} for side in (0, 1))
    return versus(where(rows, **own), where(rows, **base), but=[*fields, *but], name=name)


def repeated(rows: pd.DataFrame, least: int = 2) -> pd.DataFrame:
    """The points measured at least so often: two repeats have an interval."""
    return rows[rows["n"] >= least]


def records_with(records: Iterable[Record], traced: bool = False, **fields: Any) -> list[Record]:
    """The Records of traced Runs, or of the others, whose Run has these fields: a value, or a list
    of values.
    """
    wanted = {name: value if isinstance(value, list) else [value] for name, value in fields.items()}
    kept = (record for record in records if bool(record.run.traced_steps) == traced)
    return [
        record
        for record in kept
        if all(getattr(record.run, name) in values for name, values in wanted.items())
    ]
