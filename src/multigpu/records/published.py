"""Tables of the committed Records that travel in a wheel, so that an installed package can answer
from them; a checkout reads the Records themselves. `workflow/publish.py` writes the file.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from multigpu import paths

FILE = Path(__file__).with_name("published.parquet")
"""Columns table and row, both text: which table a row is of, and the row as JSON."""


@lru_cache
def _read(table: str) -> tuple[dict[str, Any], ...]:
    from pyarrow import parquet  # measuring needs none

    rows = parquet.read_table(FILE, filters=[("table", "==", table)])["row"]
    return tuple(json.loads(row.as_py()) for row in rows)


def published(table: str, folder: Path) -> tuple[dict[str, Any], ...]:
    """Return the rows of a table, where the folder of Records is the installed package's own; of
    another folder, and in a checkout, none.
    """
    is_own = paths.CHECKOUT is None and folder.resolve().is_relative_to(paths.DATA.resolve())
    return _read(table) if is_own and FILE.is_file() else ()
