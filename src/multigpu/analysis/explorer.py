"""Every point of every machine as data of the explorer: compact JSON beside the script that filters and shows it, and one CSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from multigpu import paths
from multigpu.analysis.fields import FIELDS, POINT
from multigpu.analysis.picture import DIGITS, Shown
from multigpu.record import RecordStore
from multigpu.run import Run

FIGURES = ("rate", "rate_low", "rate_high", "step_time_s", "peak_memory_gib", "moved_bytes")
TOLD = ("n", "launches", "tier", "status", "reason", "flags", "commits")
NAME = "explorer.csv"
DIGITS_SHOWN = 5


def record_places(runs: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """(machine, key) -> (the file below the repository that holds its latest attempt, the member of that archive; "" of a loose file).

    Raises:
        ValueError: a file there is no Record and no archive; the sentence names it.
    """
    store, found = RecordStore(runs), {}
    for machine in store.places():
        for held in sorted(store.held(machine).values(), key=lambda held: held.attempt):
            path = held.path.relative_to(paths.REPOSITORY) if held.path.is_relative_to(paths.REPOSITORY) else held.path
            member = "" if held.packed is None else f"{held.key}.{held.attempt}.json"
            found[machine, held.key] = path.as_posix(), member
    return found


def encoded(points: pd.DataFrame, places: dict[tuple[str, str], tuple[str, str]]) -> dict[str, Any]:
    """The points as columns, for JSON.

    Args:
        points: rows of `points.points`. places: as `record_places` returns them.

    Returns:
        rows: how many; columns: name -> {"values": each text once, "at": index into them by row, where there are several} or
        {"numbers": by row}; defaults: of the
        fields of a Run; needed: fields that a command must name; files, and records: by row "key file member, ..." with the file's index.
    """
    columns: dict[str, dict[str, Any]] = {}
    for name in (*POINT, *TOLD):
        texts = [_text(value) for value in points[name]]
        values = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        columns[name] = {"values": list(values)} | ({"at": [values[text] for text in texts]} if len(values) > 1 else {})
    for name in FIGURES:
        columns[name] = {"numbers": [None if pd.isna(value) else float(f"{value:.{DIGITS_SHOWN}g}") for value in points[name]]}
    files: dict[str, int] = {}
    records = []
    for machine, keys in zip(points["machine"], points["keys"], strict=True):
        held = [(key, *places.get((machine, key), ("", ""))) for key in keys.split(", ")]
        records.append([f"{key} {files.setdefault(file, len(files))} {member.removeprefix(key)}".strip() for key, file, member in held])
    fields = Run.model_fields
    return {
        "rows": len(points),
        "columns": columns,
        "fields": list(FIELDS),
        "defaults": {name: _text(fields[name].default) for name in FIELDS if not fields[name].is_required()},
        "needed": [*(name for name in FIELDS if fields[name].is_required()), "device_type"],
        "files": list(files),
        "records": records,
    }


def _text(value: Any) -> str:
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return ""
    return str(value).lower() if isinstance(value, bool) or type(value).__name__ == "bool_" else str(value)


def explorer(points: pd.DataFrame, runs: Path, repository: str) -> Shown:
    """The table of all these points, which `_static/explorer.js` fills in the site; without a script, a link to the CSV of all.

    Args:
        points: of any machines. runs: the folder of their Records. repository: where the repository is browsed, a URL or a folder
            relative to the page: links to Records begin with it.

    Raises:
        ValueError: the CSV cannot be written, or a file below `runs` is no Record; the sentence names it.
    """
    if points.empty:
        return Shown('<p class="explorer-none">There is no point yet: run <code>make study</code>.</p>')
    folder = paths.figures()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        points.drop(columns=["log_mean", "log_variance", "log_freedom"]).to_csv(folder / NAME, index=False, float_format=DIGITS)
    except OSError as error:
        raise ValueError(f"the explorer's CSV cannot be written to {folder}: {error.strerror or error}") from None
    data = json.dumps(encoded(points, record_places(runs)) | {"repository": repository.rstrip("/")}, separators=(",", ":"))
    return Shown(
        f'<p><a href="figures/{NAME}" download="{NAME}">All {len(points):,} points (CSV)</a></p>\n'
        f'<div id="explorer"><noscript><p>Filtering needs JavaScript; the CSV holds the same points.</p></noscript></div>\n'
        f'<script type="application/json" id="explorer-data">{escape_script(data)}</script>\n'
        '<script src="_static/explorer.js" defer></script>\n'
    )


def escape_script(text: str) -> str:
    """JSON that may stand inside a script element: no "<" can end it."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
