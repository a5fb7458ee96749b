"""Write what others need to use the Records: one flat table, its codebook, schemas and hashes.

Run this after new Records are committed: `PYTHONPATH=src python workflow/data_package.py`. It makes
`data/records.parquet`, `data/codebook.csv`, `data/record.schema.json`, `data/croissant.json` and
`data/manifest.csv`.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd

from multigpu import paths
from multigpu.analysis.fields import ROLES
from multigpu.analysis.frame import COLUMNS, export, frame_of
from multigpu.analysis.read import records_of
from multigpu.records.record import Record
from multigpu.records.store import FILES

LICENCE = "https://creativecommons.org/licenses/by/4.0/"
UNITS = {"_s": "s", "_gib": "GiB", "_mhz": "MHz", "_w": "W", "_c": "degrees Celsius"}
"""Units by the end of a column's name; the more particular ones stand in `OF`."""
OF = {
    "units_per_s": "units/s",
    "padded_units_per_s": "units/s",
    "bucket_mib": "MiB",
    "measured_at": "UTC",
    "parameter_change": "norm over norm",
    "units": "units of all devices over the timed steps",
    "padded_units": "units, padding included",
}


def unit_of(name: str) -> str:
    """Return the unit of a column, by its name; "" of words and counts."""
    if name in OF:
        return OF[name]
    if "_bytes" in name:
        return "bytes of a step over all replicas"
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "")


def codebook(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row a column of the flat table: name, type, unit, role, values, missing."""
    rows = []
    for name in table:
        column = table[name]
        few = column.dropna().unique()
        values = ", ".join(sorted(map(str, few))) if 0 < len(few) <= 12 else f"{len(few)} values"
        if pd.api.types.is_numeric_dtype(column) and len(few) > 12:
            values = f"{column.min():g} to {column.max():g}"
        role = ROLES.get(name, "record" if name in COLUMNS and name not in ROLES else "")
        rows.append((name, COLUMNS[name], unit_of(name), role, values, int(column.isna().sum())))
    return pd.DataFrame(rows, columns=["column", "type", "unit", "role", "values", "missing"])


def croissant(table: pd.DataFrame, digest: str) -> dict[str, Any]:
    """Return the data card of the flat table in Croissant 1.0 (mlcommons.org/croissant)."""
    kinds = {
        "int64": "sc:Integer",
        "Int64": "sc:Integer",
        "float64": "sc:Float",
        "bool": "sc:Boolean",
    }
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"records/{name}",
            "name": name,
            "description": unit_of(name) or name,
            "dataType": kinds.get(COLUMNS[name], "sc:Text"),
            "source": {"fileObject": {"@id": "records.parquet"}, "extract": {"column": name}},
        }
        for name in table
    ]
    return {
        "@context": {
            "@language": "en",
            "@vocab": "https://schema.org/",
            "cr": "http://mlcommons.org/croissant/",
            "dct": "http://purl.org/dc/terms/",
            "sc": "https://schema.org/",
            **{
                name: f"cr:{name}"
                for name in ("column", "extract", "field", "fileObject", "recordSet", "source")
            },
            "conformsTo": "dct:conformsTo",
            "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        },
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "multigpu-records",
        "description": "What training steps cost on 1 to 4 GPUs: a row a measured Run.",
        "license": LICENCE,
        "version": "0.1.0",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "records.parquet",
                "name": "records.parquet",
                "contentUrl": "records.parquet",
                "encodingFormat": "application/vnd.apache.parquet",
                "sha256": digest,
            }
        ],
        "recordSet": [
            {"@type": "cr:RecordSet", "@id": "records", "name": "records", "field": fields}
        ],
    }


def manifest(data: Path) -> str:
    """Return the lines "path,sha256" of every file of Records below a folder."""
    files = sorted({file for pattern in FILES for file in data.rglob(pattern)})
    rows = [
        f"{file.relative_to(data)},{hashlib.sha256(file.read_bytes()).hexdigest()}"
        for file in files
    ]
    return "\n".join(["path,sha256", *rows]) + "\n"


def main(data: Path = paths.DATA) -> None:
    """Write all of them."""
    table = frame_of(records_of(paths.RUNS))
    flat = export(table, data / "records.parquet")
    codebook(table).to_csv(data / "codebook.csv", index=False)
    digest = hashlib.sha256(flat.read_bytes()).hexdigest()
    for name, content in (
        ("record.schema.json", Record.model_json_schema()),
        ("croissant.json", croissant(table, digest)),
    ):
        (data / name).write_text(json.dumps(content, indent=1) + "\n")
    (data / "manifest.csv").write_text(manifest(data))


if __name__ == "__main__":
    main()
