"""What every row of a table says, said once: settings move into the note, and columns in which nothing was measured go."""

from __future__ import annotations

import re
from collections.abc import Collection

import pandas as pd

from multigpu.analysis.wording import plural

LEAST_ROWS = 3
"""Rows from which on a setting that all share is told once."""

NAMED: dict[str, str] = {
    **dict.fromkeys(("job", "model", "framework", "execution", "precision", "layout", "how", "input", "our input", "inputs"), ""),
    **dict.fromkeys(("sentences", "batching", "kind", "source"), ""),
    **{name: f"{name} " for name in ("machine", "placement", "data set", "level", "batch", "joined batch", "batches")},
    "host cores": "host cores: ",
    "N": "N = ",
    "n": "n = ",
}
"""Headings of settings, in small letters but for N (devices) beside n (repeats), and what stands before their value in a note. Results
that happen to be equal are results, and stay."""

COUNTED: dict[str, tuple[str, str]] = {
    "gpus": ("GPU", "GPUs"),
    "hosts": ("host", "hosts"),
    "devices": ("device", "devices"),
    "replicas": ("replica", "replicas"),
    "micro-batches": ("micro-batch", "micro-batches"),
    "seeds": ("seed", "seeds"),
    "parameters": ("parameter", "parameters"),
}
"""Headings of settings that count something: one of it, and several."""

ABSENT = {
    **dict.fromkeys(("", "–"), ""),
    "not measured": "Not measured",
    "no baseline": "No baseline",
    "not compared": "Not compared",
    **dict.fromkeys(("no trace", "not traced"), "Not traced"),
}
"""Cells without a figure, and how a note names a column of nothing else; dashes are not told."""


def hoisted(data: pd.DataFrame, figures: Collection[str] = (), least: int = LEAST_ROWS) -> tuple[pd.DataFrame, str]:
    """The table without columns that say nothing, or the same setting in every row, and the sentences that say it instead.

    A setting is told once where the table has `least` rows or more. The first column stays unless another column of words tells rows
    apart.

    Args:
        data: text, a column a heading.
        figures: columns of figures, which tell no rows apart.

    Returns:
        the table, and its sentences or "".
    """
    first, *others = map(str, data.columns)
    gone: dict[str, list[str]] = {}
    for name in others:
        if set(data[name]) <= ABSENT.keys():
            gone.setdefault(max(ABSENT[cell] for cell in data[name]), []).append(name)
    data = data.drop(columns=[name for names in gone.values() for name in names])
    known = [str(name) for name in data if _setting(str(name))] if len(data) >= least else []
    same = [name for name in known if data[name].nunique() == 1]
    if not any(data[name].nunique() > 1 for name in data if name not in figures):
        same = [name for name in same if name != first]
    said = [f"{why}: {_listed(names)}." for why, names in gone.items() if why]
    if same:
        said.append(f"Every row: {_listed([_told(_setting(name), str(data[name].iloc[0])) for name in same])}.")
    return data.drop(columns=same), " ".join(said)


def _listed(parts: list[str]) -> str:
    return ("; " if any(", " in part for part in parts) else ", ").join(parts)


def _setting(heading: str) -> str:
    """The heading as NAMED and COUNTED have it; "" if it is in neither."""
    name = heading if heading == "N" else heading.lower()
    return name if name in NAMED or name in COUNTED else ""


def _told(name: str, cell: str) -> str:
    """A setting with its value: "4 GPUs", "machine 4x-nvidia-h200", "n = 5 over 3 launches", "n = 1 (screening)"."""
    if name in COUNTED:
        if cell.isdecimal():
            return plural(int(cell), *COUNTED[name])
        itself = re.fullmatch(r"\d+ (GPUs?|CPU process(es)?)", cell)  # says what it counts
        return cell if itself else f"{cell} {COUNTED[name][1]}"
    if name == "n":
        count, _, more = cell.partition(", ")
        over = re.fullmatch(r"(\d+ over) (\d+)", count)
        count = f"{over[1]} {plural(int(over[2]), 'launch', 'launches')}" if over else count
        cell = f"{count} ({more})" if more else count
    return f"{NAMED[name]}{cell}"
