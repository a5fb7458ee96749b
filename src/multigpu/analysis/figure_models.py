"""Efficiency of many models on their most devices, a row a job, a mark a placement: where small multiples of lines would be a page long.

A job's name stands above its marks and not beside them: the picture is so narrow that a telephone shows all of it.
"""

from __future__ import annotations

import textwrap
from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.markers import CARETLEFT, CARETRIGHT

from multigpu.analysis.figure_scaling import BASELINES, several_devices
from multigpu.analysis.findings import panels, scaling_finding, with_several_placements
from multigpu.analysis.layout import BOTTOM, common, gaps, left_out
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.picture import Picture, head_height, message
from multigpu.analysis.style import INK, RC, look
from multigpu.analysis.wording import MODEL_NAMES, device_word, devices_text, execution_text, joined, missing, percent_text, plural

WIDTH, SIDE, BESIDE = 5.2, 0.15, 0.55
"""Inches of the picture, of its margins, and of the right one where efficiencies are written at the edge."""
LETTERS, NAME, MARK = 68, 0.16, 0.065
"""Of a line of a row's name; inches of such a line, and from one mark of a row to the next."""
KEY_LETTER, KEY_ROOM, KEY_LINE = 0.078, 0.34, 0.17
"""Inches of a letter of the legend, of a key without its letters, and of a line of keys."""
RIGHTMOST = 1.6
"""Efficiencies beyond this are written at the edge: one slow launch on one device would flatten all others."""
WELL = 0.9
"""The share of perfect scaling that the finding counts."""

Job = tuple[str, pd.DataFrame]
"""A job's name and its rows."""


def figure_models(frame: pd.DataFrame, baseline: Literal["own", "best"] = "own", compared: bool = False, headline: bool = False) -> Picture:
    """How every job scales to its most devices: a row a job, a mark a placement (hollow in TensorFlow), with its interval.

    Args:
        frame: of `load_frame`; of several machines, if these differ in devices, which then stand beside a job's name.
        baseline: "own" divides by the same placement on one device, as the documents do; "best" by the fastest single device.
        compared: draw only the jobs with two placements or more beside the ceiling, where there are any.
        headline: draw only the points of the tier headline, where there are any; a baseline may be of any tier.
    """
    column = "efficiency" if baseline == "own" else "efficiency_best"
    table = scaling_table(frame)
    headline = headline and bool(table["tier"].eq("headline").any())
    table = table[table["tier"] == "headline"] if headline else table
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
    edge = min(RIGHTMOST, max(1.05, float(marks["efficiency"].max()) * 1.02))
    with mpl.rc_context(RC):
        finding = _finding(marks) if baseline == "own" else scaling_finding(marks, column)
        _drawn(picture := Picture(*_size(finding, names, jobs)), finding, names, jobs, edge)
    on = f"In brackets: of how many devices ({', '.join(map(str, counts))}). " if len(counts) > 1 else ""
    beyond = "Arrows: the interval goes on beyond the edge. " if len(_cut(marks, edge)) else ""
    picture.caption = (
        f"Efficiency: units/s on the most devices measured over as many times that of {BASELINES[baseline]} "
        f"{device_word(marks['device_type'].iloc[0])}. {_other_forms(marks) if baseline == 'best' else ''}{on}{_hollow(marks)}"
        f"Bars: 95%; marks without: they or their baseline were measured once. {beyond}"
        f"{common(marks)}{gaps(table)}{left_out(every, jobs)}"
    )
    fields = ["machine", "model", "batch_size", "precision", "execution", "placement", "framework", "devices", "n", "launches", "tier"]
    told = ["best_single"] if baseline == "best" else []
    picture.data = marks[[*fields, "efficiency", "efficiency_low", "efficiency_high", *told, "keys"]]
    picture.alt = (
        "Dots of efficiency, a row a model. " + "; ".join(_told(name, rows) for name, (_, rows) in zip(names, jobs, strict=True)) + "."
    )
    return picture


def _lines(name: str) -> list[str]:
    return textwrap.wrap(name, LETTERS)


def _row_height(name: str, rows: pd.DataFrame) -> float:
    """Inches of one job's row: its name, its marks one below the other, and a gap."""
    return NAME * len(_lines(name)) + MARK * max(len(rows), 2) + 0.1


def _keys_a_line(rows: pd.DataFrame) -> int:
    """How many keys of the legend the picture is wide enough for."""
    widest = max(len(look(name).label) for name in rows["placement"])
    return max(1, int((WIDTH - SIDE) / (KEY_ROOM + KEY_LETTER * widest)))


def _top(finding: str | None, marks: pd.DataFrame) -> float:
    """Inches above the rows: the finding and the legend."""
    return head_height(finding, WIDTH) + 0.1 + KEY_LINE * -(-marks["placement"].nunique() // _keys_a_line(marks))


def _size(finding: str | None, names: list[str], jobs: list[Job]) -> tuple[float, float]:
    """The picture's width and height in inches."""
    high = sum(_row_height(name, rows) for name, (_, rows) in zip(names, jobs, strict=True))
    return WIDTH, _top(finding, pd.concat([rows for _, rows in jobs])) + high + BOTTOM


def _drawn(picture: Picture, finding: str | None, names: list[str], jobs: list[Job], edge: float) -> None:
    """The finding, the legend and the rows, from the top; heights within the axes are inches.

    edge: the efficiency at which the axis ends.
    """
    marks = pd.concat([rows for _, rows in jobs])
    picture.head(finding)
    width, height = picture.get_size_inches()
    inside = height - _top(finding, marks) - BOTTOM
    right = BESIDE if marks["efficiency"].gt(RIGHTMOST).any() else SIDE
    ax = picture.add_axes((SIDE / width, BOTTOM / height, (width - SIDE - right) / width, inside / height))
    _legend(picture, marks)
    ax.axvline(100, color=INK, linewidth=0.8, alpha=0.5)
    ax.set_xlim(0, 100 * edge)
    ax.set_ylim(0, inside)
    top, heads = inside, []
    for name, (_, rows) in zip(names, jobs, strict=True):
        heads.append(top - 0.02)
        _row(ax, top - 0.05 - NAME * len(_lines(name)), rows, edge)
        top -= _row_height(name, rows)
        ax.axhline(top, color=INK, linewidth=0.6, alpha=0.12)
    ax.set_yticks(heads, ["\n".join(_lines(name)) for name in names], ha="left", va="top", fontsize=8)
    ax.tick_params(axis="y", length=0, pad=-2)
    ax.grid(axis="y", visible=False)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("efficiency (%)")


def _cut(marks: pd.DataFrame, edge: float) -> pd.DataFrame:
    """The marks within the axis whose intervals are not."""
    return marks[marks["efficiency"].le(RIGHTMOST) & (marks["efficiency_high"].gt(edge) | marks["efficiency_low"].lt(0))]


def _other_forms(marks: pd.DataFrame) -> str:
    """For a caption: of how many marks the best single device ran in another form of execution."""
    forms = marks["best_single"].str.rsplit(", ", n=1).str[-1]
    others = forms[forms != marks["execution"]]
    if others.empty:
        return ""
    names = "; ".join(sorted({execution_text(form) for form in others}))
    return (
        f"For {len(others)} of {plural(len(marks), 'mark')} that way is another form of execution ({names}): "
        "what they lack may be that form's gain and not scaling; the data name it. "
    )


def _hollow(marks: pd.DataFrame) -> str:
    return "Hollow: TensorFlow. " if marks["framework"].nunique() > 1 else ""


def _jobs(drawn: pd.DataFrame, every: bool, most: bool = True) -> list[Job]:
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

    def order(job: Job) -> tuple[int, int, int]:
        first = job[1].iloc[0]
        return models.index(first["model"]) if first["model"] in models else len(models), int(first["batch_size"]), int(first["devices"])

    return sorted(((names[rows.index[0]], rows) for rows in found), key=order)


def _legend(picture: Picture, marks: pd.DataFrame) -> None:
    """The placements under the finding, in as many lines as the picture's width needs."""
    width, height = picture.get_size_inches()
    top = 1 - (head_height(picture.finding, width) - 0.05) / height
    keys = [_key(name) for name in sorted(set(marks["placement"]), key=lambda name: look(name).order)]
    picture.legend(
        handles=keys,
        loc="upper left",
        bbox_to_anchor=(0.04 / width, top),
        ncols=_keys_a_line(marks),
        columnspacing=1.2,
        borderpad=0,
        labelspacing=0.25,
        handletextpad=0.4,
    )


def _key(placement: str) -> Line2D:
    style = look(placement)
    return Line2D([], [], color=style.colour, marker=style.marker, linestyle="none", markersize=5, label=style.label)


def _row(ax: Axes, top: float, rows: pd.DataFrame, edge: float) -> None:
    """One job's marks below `top`, a little below each other in the order of all pages; what lies beyond the edge is written there."""
    ordered = rows.assign(_order=[look(name).order for name in rows["placement"]]).sort_values("_order")
    top -= MARK * (0.5 if len(ordered) > 1 else 1)
    for index, (_, row) in enumerate(ordered.iterrows()):
        style, y = look(row["placement"]), top - MARK * index
        if row["efficiency"] > RIGHTMOST:
            text = f"▸ {percent_text(row['efficiency'])}"
            ax.text(1.01, y, text, transform=ax.get_yaxis_transform(), color=style.colour, fontsize=8, va="center")
            continue
        if not missing(row["efficiency_low"]):
            low, high = (100 * row[f"efficiency_{end}"] for end in ("low", "high"))
            ends = [max(low, 0.0), min(high, 100 * edge)]
            ax.plot(ends, [y, y], color=style.colour, linewidth=2.2, alpha=0.4, solid_capstyle="butt")
            for end, arrow in [(0.0, CARETLEFT)] * (low < 0) + [(100 * edge, CARETRIGHT)] * (high > 100 * edge):
                ax.plot([end], [y], marker=arrow, color=style.colour, markersize=5, linestyle="none", clip_on=False)
        hollow: dict[str, Any] = {"mfc": "none", "mew": 1.3} if row["framework"] == "tensorflow" else {}
        ax.plot(
            [100 * row["efficiency"]], [y], marker=style.marker, color=style.colour, markersize=4.5, linestyle="none", zorder=3, **hollow
        )


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
