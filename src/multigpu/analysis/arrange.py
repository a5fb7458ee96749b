"""Rows put together for a table or a figure; a column goes with its bounds, `<name>_low` and `<name>_high`, where it has them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from multigpu.analysis.compare import versus
from multigpu.analysis.points import where
from multigpu.record import Record

ENDS = ("", "_low", "_high")


def _bounded(rows: pd.DataFrame, columns: Mapping[str, str]) -> dict[str, pd.Series]:
    return {f"{new}{end}": rows[f"{old}{end}"] for new, old in columns.items() for end in ENDS if f"{old}{end}" in rows}


def also(rows: pd.DataFrame, **columns: str) -> pd.DataFrame:
    """The rows with columns under further names: `also(rows, share="efficiency_same")`."""
    return rows.assign(**_bounded(rows, columns))


def beside(rows: pd.DataFrame, other: pd.DataFrame, on: Sequence[str], **columns: str) -> pd.DataFrame:
    """The rows with columns of the one row of `other` that equals each in `on`: new name = its name there; empty where there is none.

    Raises:
        pandas.errors.MergeError: a row has several counterparts.
    """
    taken = other[list(on)].assign(**_bounded(other, columns))
    return rows.merge(taken, how="left", on=list(on), validate="m:1")


def stacked(name: str, parts: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Parts one below the other, the column `name` saying which each row is of."""
    return pd.concat([rows.assign(**{name: said}) for said, rows in parts.items()], ignore_index=True)


def compared(rows: pd.DataFrame, but: Sequence[str] = (), name: str = "ratio", **fields: tuple[Any, Any]) -> pd.DataFrame:
    """Points of `rows` beside each other (`versus`): those with the first value of each field over those with the second.

        compared(steps, execution=("captured", "eager"))

    Args:
        but: further fields in which the two may differ.
    """
    own, base = ({field: values[side] for field, values in fields.items()} for side in (0, 1))
    return versus(where(rows, **own), where(rows, **base), but=[*fields, *but], name=name)


def repeated(rows: pd.DataFrame, least: int = 2) -> pd.DataFrame:
    """The points measured at least so often: two repeats have an interval."""
    return rows[rows["n"] >= least]


def records_with(records: Iterable[Record], traced: bool = False, **fields: Any) -> list[Record]:
    """The Records of traced Runs, or of the others, whose Run has these fields: a value, or a list of values."""
    wanted = {name: value if isinstance(value, list) else [value] for name, value in fields.items()}
    kept = (record for record in records if bool(record.run.traced_steps) == traced)
    return [record for record in kept if all(getattr(record.run, name) in values for name, values in wanted.items())]
