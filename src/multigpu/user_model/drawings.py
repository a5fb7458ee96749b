"""Draw what a page of a comparison shows: the race, and where a step goes."""

from __future__ import annotations

from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING

import pandas as pd

from multigpu.analysis.parts import SIX_NAMES, shown_steps
from multigpu.analysis.points import Missing
from multigpu.records.trace import Part
from multigpu.user_model.fits import GIB, memories_of, room_of
from multigpu.user_model.parts import COMPUTING, INPUT, MERGING, REST, SHARED, traced_of

if TYPE_CHECKING:
    from multigpu.user_model.result import Result

PART_OF: dict[str, Part] = {
    INPUT: "input",
    COMPUTING: "computing",
    SHARED: "rest",
    MERGING: "merging",
    REST: "rest",
    **{name: part for part, name in SIX_NAMES.items()},
}
"""Which of the six parts a cause belongs to; any other is the wait for a slow rank."""


def shown_race(result: Result) -> str:
    """Draw each way's rate with its interval, as HTML: the leader and its rivals apart from those
    that are slower and those that train something else.
    """
    from multigpu.analysis.picture import shown
    from multigpu.analysis.plots import dots

    race = result.race
    if race is None or len(result.names) < 2:
        return ""
    near = {race.leader, *race.near}
    stands = dict.fromkeys(near, "ahead, or not told apart from it")
    stands |= dict.fromkeys(race.behind, "slower")
    rows = result.frame.sort_values("rate", ascending=False, kind="stable")
    rows = rows.assign(stands=[stands.get(name, "trains something else") for name in rows["name"]])
    caption = "Samples/s, batches ready; 95% intervals, hollow where there is a single run."
    picture = dots(rows, "rate", "name", "The race", caption, hue="stands", form="rate")
    return str(shown(picture, "race"))


def six_parts(result: Result, name: str) -> dict[Part, float]:
    """Return the seconds of each of the six parts of a way's step: of its trace, else of the
    differences that `parts` has, in which launching counts as computing; none: neither is known.
    """
    if (found := traced_of(result, result[name])) is not None:
        return found.parts
    told: dict[Part, float] = {}
    with suppress(Missing):
        for _, row in result.why_not_scaling(name).iterrows():
            part = PART_OF.get(row["cause"], "waiting")
            told[part] = told.get(part, 0.0) + float(row["ms"]) / 1e3
    return told


def shown_parts(result: Result) -> str:
    """Draw the six parts of a step as given, of one device and of the fastest, as HTML."""
    chosen = [result.base, result.chosen(None)] if result.names else []
    steps = {}
    for name in dict.fromkeys(one.name for one in chosen if one is not None):
        untraced = traced_of(result, result[name]) is None
        how = " (by differences, not traced: launching is within computing)" if untraced else ""
        if found := six_parts(result, name):
            steps[f"{name}{how}"] = found
    return shown_steps(steps).html


def shown_memory(result: Result) -> str:
    """Draw what a step of each way needs of its fullest device, as HTML bars with a line where the
    device is full: as forecast, and on GPUs as measured; nothing where neither is known.
    """
    memories, rows = memories_of(result.runs, result.described), []
    for name in result.names:
        run, told = result[name].run, list[tuple[str, float]]()
        if name in memories:
            told.append(("forecast", memories[name].peak(run.batch_size) / GIB))
        # on a CPU the peak of a process holds all that it imported, and never falls
        if run.device_type == "cuda" and not pd.isna(result[name].row["peak_memory_gib"]):
            told.append(("measured", float(result[name].row["peak_memory_gib"])))
        rows += [(name, which, gib) for which, gib in told]
    if not rows:
        return ""
    run = result.runs[-1]
    room = room_of(result.records[0].machine, run.device_type, run.devices) / GIB
    scale = 1.05 * max(room, *(gib for _, _, gib in rows))
    bars = "".join(
        f"<tr><td>{escape(name)}</td><td>{which}</td><td class='number'>{gib:.3g}</td>"
        f"<td class='room'><div class='{which}' style='width:{100 * gib / scale:.2f}%'></div>"
        f"<i style='left:{100 * room / scale:.2f}%'></i></td></tr>"
        for name, which, gib in rows
    )
    device = "GPU" if run.device_type == "cuda" else "process's share of this computer's memory"
    return (
        f"<table class='memory'><tr><th>way</th><th></th><th>GiB</th>"
        f"<th>the line: a {device}, {room:.3g} GiB</th></tr>{bars}</table>"
    )
