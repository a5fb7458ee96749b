"""Efficiency of many models on their most devices, a row a job, a mark a placement: where small multiples of lines would be a page long."""

from __future__ import annotations

import textwrap
from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from multigpu.analysis.figure_scaling import BASELINES, several_devices
from multigpu.analysis.findings import panels, scaling_finding, with_several_placements
from multigpu.analysis.layout import common, gaps, grid_of_axes, left_out, rows_from_top
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.picture import Picture, head_height, message
from multigpu.analysis.style import INK, RC, look
from multigpu.analysis.wording import MODEL_NAMES, device_word, devices_text, joined, missing, percent_text

WIDTH, ROW, TWO_LINES = 5.6, 0.3, 0.36
LETTERS, LETTER = 52, 0.068
"""Of a line of a row's name, and the inches of one."""
RIGHTMOST = 1.6
"""Efficiencies beyond this are written at the edge: one slow launch on one device would flatten all others."""
ONE_LINE = 7
"""So many placements stand in one line of the legend."""
WELL = 0.9
"""The share of perfect scaling that the finding counts."""


def figure_models(frame: pd.DataFrame, baseline: Literal["own", "best"] = "own", compared: bool = False) -> Picture:
    """How every job scales to its most devices: a row a job, a mark a placement (hollow in TensorFlow), with its interval.

    Args:
        frame: of `load_frame`; of several machines, if these differ in devices, which then stand beside a job's name.
        baseline: "own" divides by the same placement on one device, as the documents do; "best" by the fastest single device.
        compared: draw only the jobs with two placements or more beside the ceiling, where there are any.
    """
    column = "efficiency" if baseline == "own" else "efficiency_best"
    table = scaling_table(frame)
    drawn = table[table[column].notna()]
    every = _jobs(drawn, baseline == "best")
    several = {name for name, _ in with_several_placements(_jobs(drawn, baseline == "best", most=False))} if compared else set()
    jobs = [job for job in every if job[0] in several] or every
    if not jobs:
        return message("No scaling to draw: no Record on several devices has its baseline on one device.")
    marks = pd.concat([rows for _, rows in jobs])
    marks = marks.assign(**{"efficiency" + end: marks[column + end] for end in ("", "_low", "_high")})
    jobs = [(name, marks.loc[rows.index]) for name, rows in jobs]
    counts = sorted({int(count) for count in marks["devices"]})
    names = [f"{name}\u00a0({rows['devices'].iloc[0]})" if len(counts) > 1 else name for name, rows in jobs]
    lines = [textwrap.wrap(name, LETTERS) for name in names]
    high = ROW if max(map(len, lines)) == 1 else TWO_LINES
    left = 0.2 + LETTER * max(len(line) for own in lines for line in own)
    placements = sorted(set(marks["placement"]), key=lambda name: look(name).order)
    with mpl.rc_context(RC):
        finding = _finding(marks) if baseline == "own" else scaling_finding(marks, column)
        picture, (ax,) = grid_of_axes(1, finding, WIDTH, high * len(jobs) + 0.2, 1, 0.5, left=left, legend=True, names=[""])
        _legend(picture, placements)
        for place, (_, rows) in enumerate(jobs[::-1]):
            _row(ax, place, rows)
        ax.axvline(100, color=INK, linewidth=0.8, alpha=0.5)
        ax.set_xlim(0, 100 * min(RIGHTMOST, max(1.05, float(marks["efficiency"].max()) * 1.02)))
        ax.set_yticks(range(len(jobs)), ["\n".join(own) for own in lines[::-1]])
        ax.grid(axis="y", color=INK, linewidth=0.6, alpha=0.12)
        rows_from_top(ax, len(jobs), len(jobs))
        ax.spines["left"].set_visible(False)
        ax.set_xlabel("efficiency (%)")
    on = f"In brackets: of how many devices ({', '.join(map(str, counts))})." if len(counts) > 1 else ""
    picture.caption = (
        f"Efficiency: units/s on the most devices measured over as many times that of {BASELINES[baseline]} "
        f"{device_word(marks['device_type'].iloc[0])}. {on} {_hollow(marks)}Bars: 95%; marks without were measured once (screening). "
        f"{common(marks)}{gaps(table)}{left_out(every, jobs)}"
    )
    fields = ["machine", "model", "batch_size", "precision", "execution", "placement", "framework", "devices", "n", "launches", "tier"]
    picture.data = marks[[*fields, "efficiency", "efficiency_low", "efficiency_high", "keys"]]
    picture.alt = (
        "Dots of efficiency, a row a model. " + "; ".join(_told(name, rows) for name, (_, rows) in zip(names, jobs, strict=True)) + "."
    )
    return picture


def _hollow(marks: pd.DataFrame) -> str:
    return "Hollow: TensorFlow. " if marks["framework"].nunique() > 1 else ""


def _jobs(drawn: pd.DataFrame, every: bool, most: bool = True) -> list[tuple[str, pd.DataFrame]]:
    """Each job's rows on the most devices, by model and batch; of several machines fewer devices first, and no name of a machine.

    Args:
        every: also what was not measured on one device, since its baseline is another line's. most: False keeps all numbers of devices.
    """
    found: list[pd.DataFrame] = []
    for _, panel in panels(drawn):
        lines = panel[panel["devices"] > 1] if every else several_devices(panel)
        if len(lines):
            found.append(lines)
    marks = pd.concat(found).assign(machine="") if found else drawn.iloc[:0]
    found = [lines[lines["devices"] == lines["devices"].max()] for lines in found] if most else found
    names = {index: name for name, panel in panels(marks) for index in panel.index}  # by what tells these rows apart, and no machine
    models = list(MODEL_NAMES)

    def order(job: tuple[str, pd.DataFrame]) -> tuple[int, int, int]:
        first = job[1].iloc[0]
        return models.index(first["model"]) if first["model"] in models else len(models), int(first["batch_size"]), int(first["devices"])

    return sorted(((names[rows.index[0]], rows) for rows in found), key=order)


def _legend(picture: Picture, placements: list[str]) -> None:
    """The placements under the finding, in two lines if they are many: the panel has no name of its own and leaves room for the second."""
    width, height = picture.get_size_inches()
    top = 1 - (head_height(picture.finding, width) - 0.05) / height
    columns = len(placements) if len(placements) <= ONE_LINE else -(-len(placements) // 2)
    keys, corner = [_key(name) for name in placements], (0.04 / width, top)
    picture.legend(handles=keys, loc="upper left", bbox_to_anchor=corner, ncols=columns, columnspacing=1.4, borderpad=0, labelspacing=0.25)


def _key(placement: str) -> Line2D:
    style = look(placement)
    return Line2D([], [], color=style.colour, marker=style.marker, linestyle="none", markersize=5, label=style.label)


def _row(ax: Axes, place: int, rows: pd.DataFrame) -> None:
    """One job's marks, a little below each other in the order of all pages; what lies beyond the edge is written there."""
    ordered = rows.assign(_order=[look(name).order for name in rows["placement"]]).sort_values("_order")
    step = 0.72 / max(len(ordered), 4)
    beyond = []
    for index, (_, row) in enumerate(ordered.iterrows()):
        style, y = look(row["placement"]), place + step * ((len(ordered) - 1) / 2 - index)
        if row["efficiency"] > RIGHTMOST:
            beyond.append((y, f"▸ {percent_text(row['efficiency'])}", style.colour))
            continue
        if not missing(row["efficiency_low"]):
            low, high = (100 * min(row[f"efficiency_{end}"], RIGHTMOST) for end in ("low", "high"))
            ax.plot([low, high], [y, y], color=style.colour, linewidth=2.2, alpha=0.4, solid_capstyle="butt")
        hollow: dict[str, Any] = {"mfc": "none", "mew": 1.3} if row["framework"] == "tensorflow" else {}
        ax.plot(
            [100 * row["efficiency"]], [y], marker=style.marker, color=style.colour, markersize=4.5, linestyle="none", zorder=3, **hollow
        )
    for y, text, colour in beyond:
        ax.text(1.01, y, text, transform=ax.get_yaxis_transform(), color=colour, fontsize=8, va="center")


def _finding(marks: pd.DataFrame) -> str | None:
    """Of the two placements that were measured for most jobs, in how many each reaches `WELL` of perfect scaling."""
    own = marks[marks["placement"] != "independent"]
    often = own["placement"].value_counts()
    if len(often) < 2:
        return None
    chosen = sorted(sorted(often.index, key=lambda name: (-often[name], look(name).order))[:2], key=lambda name: look(name).order)
    parts = []
    for name in chosen:
        rows = own[own["placement"] == name]
        parts.append(f"{look(name).label} in {int(rows['efficiency'].ge(WELL).sum())} of {len(rows)}")
    counts = sorted({int(count) for count in own["devices"]})
    on = (
        devices_text(counts[-1], own["device_type"].iloc[0]) if len(counts) == 1 else f"2 to {counts[-1]} GPUs" if counts[0] == 2 else "all"
    )
    return f"On {on}, jobs that reach {WELL:.0%} of perfect scaling: {joined(parts)}"


def _told(name: str, rows: pd.DataFrame) -> str:
    def text(row: Any) -> str:
        return f"{look(row['placement']).label} {percent_text(row['efficiency'], row['efficiency_low'], row['efficiency_high'])}"

    return f"{name}: " + ", ".join(text(row) for _, row in rows.sort_values("efficiency", ascending=False).iterrows())
