"""`PYTHONPATH=src python workflow/publish.py [FILE]`: what a wheel takes along of the committed
Records, as one parquet of rows that `records/published.py` reads. Its Runs are those of the flat
table `records.parquet`, which `workflow/data_package.py` writes.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from multigpu import paths
from multigpu.analysis.collectives import collectives_frame
from multigpu.analysis.frame import COLUMNS
from multigpu.analysis.read import machines_in, records_of, timed_steps
from multigpu.machine.ceilings import read_ceilings
from multigpu.records.published import FILE


def rows_of(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Give each row of a frame as plain values, without those that are missing."""
    plain = frame.astype(object).where(frame.notna(), None)
    for row in plain.to_dict("records"):
        yield {str(name): value for name, value in row.items() if value is not None}


def flat_table(data: Path, keys: set[str]) -> pd.DataFrame:
    """Return the flat table of a folder of Records. ValueError: it is not of these Records."""
    flat = pd.read_parquet(file := data / "records.parquet")
    if list(flat) != list(COLUMNS) or set(flat["key"]) != keys:
        raise ValueError(f"{file} is not of the Records of today: run workflow/data_package.py")
    return flat


def tables(data: Path) -> dict[str, Iterator[dict[str, Any]]]:
    """Give what travels of a folder that holds runs/, collectives/ and records.parquet, by the
    table's name.

    Of steps only those of one device are kept: their spread is what a forecast draws from.
    """
    runs = data / "runs"
    records = records_of(runs)
    alone = [record for record in records if record.run.devices == 1]
    flat = flat_table(data, {one.key for one in records if not one.run.traced_steps})
    steps = ({"key": key, "steps_s": own} for key, own in timed_steps(alone).items())
    return {
        "runs": rows_of(flat),
        "steps": steps,
        "machines": (one.model_dump(mode="json") for one in machines_in(records).values()),
        "ceilings": (one.model_dump(mode="json") for one in read_ceilings(runs)),
        "collectives": rows_of(collectives_frame(data / "collectives")),
    }


def publish(file: Path = FILE, data: Path = paths.DATA) -> Path:
    """Write the tables of a folder of Records into one file; returns it."""
    pairs = [(name, json.dumps(row)) for name, rows in tables(data).items() for row in rows]
    columns = [list(column) for column in zip(*pairs, strict=True)]
    table = pa.table(columns, names=["table", "row"])
    parquet.write_table(table, file, compression="zstd", compression_level=19)
    return file


if __name__ == "__main__":
    print(publish(*map(Path, sys.argv[1:])))
