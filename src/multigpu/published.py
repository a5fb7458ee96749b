"""The documents' own figures, as they printed them: `data/published/*.csv`."""

from __future__ import annotations

import pandas as pd

from multigpu.paths import PUBLISHED


def published_names() -> list[str]:
    """Every table that `load_published` knows, in alphabetical order."""
    return sorted(path.stem for path in PUBLISHED.glob("*.csv"))


def load_published(name: str) -> pd.DataFrame:
    """One table of the documents; its columns carry their units in their names, an empty cell is one the document leaves empty.

    Args:
        name: the file's name without ".csv"; its first three digits are the document's.

    Raises:
        ValueError: there is no such table; the sentence names the known ones.
    """
    if name not in published_names():
        raise ValueError(f"unknown published table {name!r}: choose one of {', '.join(published_names())}")
    return pd.read_csv(PUBLISHED / f"{name}.csv")


def published_value(name: str, statement: str) -> float:
    """The value of one row of a table of statements (`001_statements` and its like, `000_correction`), in the row's unit.

    Raises:
        ValueError: the table holds no statements, or no such one; the sentence names the known ones.
    """
    table = load_published(name)
    if "name" not in table:
        raise ValueError(f"published table {name!r} holds no named statements: read it with load_published")
    row = table.loc[table["name"] == statement, "value"]
    if row.empty:
        raise ValueError(f"unknown statement {statement!r} of {name!r}: choose one of {', '.join(table['name'])}")
    return float(row.iloc[0])
