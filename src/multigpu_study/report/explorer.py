"""Every point and every other Record as data of the explorer and as a CSV; and charts that a reader
moves, with nothing to be fetched.
"""

import json
import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from multigpu import paths
from multigpu.analysis.estimate import WRITTEN, keys_in
from multigpu.analysis.fields import FIELDS, POINT
from multigpu.analysis.limits import mfu_of
from multigpu.analysis.picture import DIGITS, FONTS, READ_OUT, csv_link
from multigpu.analysis.points import Missing
from multigpu.analysis.show import Shown, explorer_link, of_machines
from multigpu.analysis.style import OTHERS
from multigpu.analysis.templates import macros_of
from multigpu.records.base import Kept
from multigpu.records.cache import cached_on_disk
from multigpu.records.store import Held, Store
from multigpu.spec.run import Run
from multigpu.writing import explaining

FIGURES = ("rate", "rate_low", "rate_high", "step_time_s", "peak_memory_gib", "moved_bytes")
TOLD = ("n", "launches", "tier", "status", "reason", "flags", "commits")
NAME = "explorer.csv"
FOLDERS = (
    "runs",
    "collectives",
    "training",
    "synchrony",
    "stages",
    "hosts",
    "hosts/runs",
    "interference",
)


def records_held(root: Path) -> dict[tuple[str, str], Held]:
    """(folder's name, key) -> where its latest attempt lies, of Records of any kind; a ValueError
    as of `Store`.
    """
    store: Store[Kept] = Store(root)
    every = ((place, held) for place in store.places() for held in store.held(place).values())
    return {
        (place, held.key): held for place, held in sorted(every, key=lambda one: one[1].attempt)
    }


def encoded(points: pd.DataFrame, data: Path) -> dict[str, Any]:
    """The points (rows of `points.points`) as columns, and all other Records below a data folder,
    for JSON.

    rows: how many; columns: name -> {"values": each text once, "at": index into them by row, where
        there are several} or {"numbers": by row}; needed: fields that a command must name; files,
        and records: by row "key file member, ..." with the file's index; others: [folder, machine,
        what was asked as "name=value ...", "key file member"] of each Record of no point.
    """
    columns: dict[str, dict[str, Any]] = {}
    for name in (*POINT, *TOLD):
        at, values = pd.factorize(np.array([_text(value) for value in points[name]], dtype=object))
        columns[name] = {"values": list(values)} | ({"at": at.tolist()} if len(values) > 1 else {})
    figures = {name: points[name] for name in FIGURES}
    shares = [mfu_of(row) for row in points.to_dict("records")]
    if not all(map(math.isnan, shares)):
        figures["mfu"] = pd.Series(shares)
    for name, numbers in figures.items():
        columns[name] = {
            "numbers": [None if pd.isna(value) else float(f"{value:.5g}") for value in numbers]
        }
    files: dict[str, int] = {}

    def place(held: Held) -> str:
        path = held.path
        if path.is_relative_to(paths.REPOSITORY):
            path = path.relative_to(paths.REPOSITORY)
        member = "" if held.packed is None else f".{held.attempt}.json"
        return f"{held.key} {files.setdefault(path.as_posix(), len(files))} {member}".strip()

    own = sorted(path.relative_to(data).as_posix() for path in data.glob("comparisons/*/records"))
    lie = {folder: records_held(data / folder) for folder in (*FOLDERS, *own)}
    named = [
        [(machine, key) for key in keys.split(", ")]
        for machine, keys in zip(points["machine"], points["keys"], strict=True)
    ]
    records = [
        [place(lie["runs"].pop(one)) if one in lie["runs"] else one[1] for one in row]
        for row in named
    ]
    others = [
        (folder, machine, _asked(held), place(held))
        for folder, held_there in lie.items()
        for (machine, _), held in held_there.items()
    ]
    fields = Run.model_fields
    return {
        "rows": len(points),
        "columns": columns,
        "fields": list(FIELDS),
        "defaults": {
            name: _text(fields[name].default) for name in FIELDS if not fields[name].is_required()
        },
        "needed": [*(name for name in FIELDS if fields[name].is_required()), "device_type"],
        "files": list(files),
        "records": records,
        "others": others,
    }


def _asked(held: Held) -> str:
    """Write a Record's Run or experiment as "name=value ...", without what every Run does unless
    told otherwise.
    """
    try:
        whole = json.loads(held.text())
    except (OSError, EOFError, ValueError) as error:
        return f"this file cannot be read: {error}"
    asked = whole.get("run") or whole.get("training") or whole.get("experiment") or {}
    asked = {**asked, **asked.get("run", {})}
    usual = {
        name: field.default for name, field in Run.model_fields.items() if not field.is_required()
    }
    kept = {
        name: value.get("kind", "") if isinstance(value, dict) else value
        for name, value in asked.items()
        if name != "run"
    }
    return " ".join(
        f"{name}={_text(value)}"
        for name, value in kept.items()
        if value not in (None, "", [], usual.get(name))
    )


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return ""
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return str(value).lower()
    return str(value)


def explorer(points: pd.DataFrame, runs: Path, repository: str) -> Shown:
    """The table of all these points, which `_static/explorer.js` fills in the site; without a
    script, a link to the CSV of all.
    runs: the folder of their Records. repository: where the repository is browsed, a URL or a
        folder relative to the page: links to Records begin with it. A ValueError says that the CSV
        cannot be written, or which file below `runs` is no Record.
    """
    if points.empty:
        return Shown(
            '<p class="explorer-none">There is no point yet: run <code>make study</code>.</p>'
        )
    folder = paths.figures()
    with explaining(f"the explorer's CSV cannot be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        points.drop(columns="sample").to_csv(folder / NAME, index=False, float_format=DIGITS)
    found = encoded(points, runs.parent) | {"repository": repository.rstrip("/")}
    # nothing in it can end a script
    data = json.dumps(found, separators=(",", ":")).replace("<", "\\u003c")
    return Shown(HTML("points", name=NAME, count=len(points), data=data) + "\n")


_INK = {"labelColor": "currentColor", "titleColor": "currentColor"}
LOOK: dict[str, Any] = {
    "range": {"category": OTHERS},
    **{"background": None, "font": FONTS, "view": {"stroke": None}, "legend": _INK},
    "axis": {**_INK, "gridOpacity": 0.3, "domain": False, "tickColor": "currentColor"},
    "title": {"color": "currentColor", "anchor": "start", "fontSize": 12},
}
"""Colours of the page around it, light and dark; a named font, as Vega measures its words."""
HTML = macros_of("multigpu_study.report", "explorer.j2")


def choosing(rows: pd.DataFrame, **asked: Sequence[Any]) -> alt.Chart:
    """Return a chart of those rows that have what a reader chooses below it.
    asked: column -> what stands before its values, the one it begins with, and where all can be
        drawn at once the word for that. Missing: there is no row.
    """
    if rows.empty:
        raise Missing("no row to draw")
    chart = alt.Chart(rows)
    for column, (words, first, *every) in asked.items():
        values = [*every, *rows[column].unique().tolist()]
        bind = alt.binding_radio if len(values) < 5 else alt.binding_select
        chosen = alt.param(f"chosen_{column}", first, bind(options=values, name=f"{words} "))
        alike = ", ".join([f"datum.{column}", *map(json.dumps, every)])
        shown = f"indexof([{alike}], {chosen.name}) >= 0"
        chart = chart.add_params(chosen).transform_filter(shown)
    return chart


def explorable(
    chart: alt.TopLevelMixin,
    name: str,
    finding: str,
    caption: str,
    data: pd.DataFrame,
    link: str = "",
) -> Shown:
    """The chart as one HTML element: its title (the finding), controls and drawing, a caption, and
    its data and its points in the explorer (their query is `link`) one click away.
    name: of its element, and of the CSV; a ValueError if it is no plain one.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", name):
        raise ValueError(
            f"{name!r} is no name for a chart: use letters, digits and '-', a letter first"
        )
    WRITTEN.update(keys_in(data))
    records = explorer_link(of_machines(link, data), "Records")
    program = cached_on_disk(  # the same for every chart, and some seconds' work
        f"vega-{alt.__version__}",
        [],
        lambda: re.findall(r"(?s)<script.*?>(.*?)</script>", chart.to_html(inline=True))[0],
    )
    drawn = json.dumps(chart.to_dict() | {"config": LOOK}).replace("</", "<\\/")
    figure = HTML(
        "chart",
        name=name,
        finding=escape(finding),
        program=program,
        drawn=drawn,
        options=json.dumps({"actions": False, "renderer": "svg", "mode": "vega-lite"}),
        most=READ_OUT,
        caption=f"{escape(caption)}{csv_link(data, name)}{records}",
    )
    return Shown(f"{figure}\n")
