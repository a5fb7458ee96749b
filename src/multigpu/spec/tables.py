"""Read tables of data that stand as CSV beside the modules that use them."""

import csv
from functools import cache
from pathlib import Path


@cache
def table(path: Path) -> list[dict[str, str]]:
    """The rows of a table by the names in its first line; empty cells are ""."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def columns_of(path: Path, frame: str) -> dict[str, str]:
    """The columns of a frame in order, with their dtypes, as such a table lists them."""
    return {row["column"]: row["dtype"] for row in table(path) if row["frame"] == frame}
