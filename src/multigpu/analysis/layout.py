"""Small multiples laid out in inches, labels beside the lines they name, and what every caption says."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from multigpu.analysis.findings import line_name, panels
from multigpu.analysis.picture import Picture, head_height
from multigpu.analysis.wording import constants, devices_text, plural, repeats_text, why_missing

LEFT, RIGHT, BOTTOM = 0.62, 0.15, 0.55
"""Margins in inches, where axis labels stand."""
MOST_WIDTH, LEAST_PANEL = 11.3, 2.2
"""Inches of the widest picture, in which letters of 8.5 points are 7.3 pixels high in a column of 700; and of the narrowest panel."""


def grid_of_axes(
    count: int,
    finding: str | None,
    width: float,
    height: float | Sequence[float],
    columns: int = 2,
    label_width: float = 0.0,
    row_gap: float = 0.75,
    left: float = LEFT,
    legend: bool = False,
    names: Sequence[str] = (),
) -> tuple[Picture, list[Axes]]:
    """A picture with `count` axes of `width` x `height` inches in rows of `columns`, each with room for labels right and left of it.

    Where that is wider than MOST_WIDTH, panels become narrower, down to LEAST_PANEL, and then fewer stand in a row.

    height: of all panels, or of each; a row is as high as its highest.
    names: of the panels, to leave room for.
    legend: whether to leave a line for `Picture.legend_line` under the finding.
    """
    columns = min(columns, count)
    beside = left + label_width + RIGHT
    while columns > 1 and columns * (beside + min(width, LEAST_PANEL)) > MOST_WIDTH:
        columns -= 1
    width = min(width, max(MOST_WIDTH / columns - beside, LEAST_PANEL))
    lines = max((len(textwrap.wrap(name, int(width * 12.5))) for name in names), default=1)
    title_height = 0.13 + 0.17 * lines
    row_gap += title_height - 0.3
    heights = list(height) if isinstance(height, Sequence) else [height] * count
    of_rows = [max(heights[first : first + columns]) for first in range(0, count, columns)]
    cell = left + width + label_width + RIGHT
    total = max(columns * cell, 5.2)
    top = head_height(finding, total) + title_height + (0.25 if legend else 0.0)
    full = top + sum(of_rows) + (len(of_rows) - 1) * row_gap + BOTTOM
    picture = Picture(total, full)
    picture.head(finding)
    axes = []
    for index in range(count):
        row, column = divmod(index, columns)
        own, above = heights[index], sum(of_rows[:row]) + row * row_gap
        x, y = column * cell + left, full - top - above - own
        axes.append(picture.add_axes((x / total, y / full, width / total, own / full)))
    return picture, axes


def name_panel(ax: Axes, name: str) -> None:
    """The panel's name above it, in as many lines as its width needs."""
    width = ax.get_window_extent().width / 72
    ax.set_title(textwrap.fill(name, int(width * 12.5)), pad=8, linespacing=1.2)


def margin_for(names: Iterable[str], least: float = 1.05) -> float:
    """Inches beside an axis for these names of rows or lines: bold letters of 8 points are about 0.085 inches wide."""
    return max(least, 0.085 * max(map(len, names)) + 0.15)


def rows_from_top(ax: Axes, rows: int, most: int) -> None:
    """Room for `most` rows, of which `rows` are used from the top: rows are equally high in every panel."""
    ax.set_ylim(rows - most - 0.6, rows - 0.4)
    ax.tick_params(axis="y", length=0)


def spread_labels(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions moved as little as possible so that neighbours are `gap` apart and all lie between `low` and `high`."""
    order = np.argsort(positions, kind="stable")
    placed = np.array(positions, dtype=float)[order]
    for _ in range(200):
        moved = False
        for i in range(len(placed) - 1):
            lack = gap - (placed[i + 1] - placed[i])
            if lack > 1e-9:
                placed[i] -= lack / 2
                placed[i + 1] += lack / 2
                moved = True
        if len(placed):
            placed += max(0.0, low - placed[0])
            placed -= max(0.0, placed[-1] - high)
        if not moved:
            break
    result = np.empty(len(placed))
    result[order] = placed
    return [float(x) for x in result]


def label_lines(ax: Axes, ends: Sequence[tuple[float, float, str, str]], height_in: float) -> float:
    """Write each line's name right of its end (x, y, name, colour), apart from each other, in the line's colour.

    Returns the height of the lowest name, as a share of the axes' (1 without any).
    """
    low, high = ax.get_ylim()
    to_share = ax.transData + ax.transAxes.inverted()
    shares = [float(to_share.transform((x, y))[1]) for x, y, _, _ in ends]
    placed = spread_labels(shares, 0.155 / height_in, 0.02, 1.02) if ends else []
    for (_, _, name, colour), share in zip(ends, placed, strict=True):
        ax.text(1.03, share, name, transform=ax.transAxes, color=colour, va="center", ha="left", fontsize=8.5, fontweight="bold")
    ax.set_ylim(low, high)
    return min(placed, default=1.0)


def label_early(ax: Axes, ends: Sequence[tuple[float, float, str, str]], floor: float, below: float, height_in: float) -> None:
    """Write the names of lines that stop early right of where they stop, the highest line's first, one below the other.

    Args:
        ends: x, y, name, colour; one x.
        floor: the lowest value that any line has there or later. below: of `label_lines`. Names stand below both, as far as there is room.
    """
    to_share, gap = ax.transData + ax.transAxes.inverted(), 0.155 / height_in
    first = max(min(float(to_share.transform((0, floor))[1]), below) - gap, 0.03 + gap * (len(ends) - 1))
    for place, (x, y, name, colour) in enumerate(sorted(ends, key=lambda end: -end[1])):
        across = float(to_share.transform((x, y))[0]) + 0.02
        ax.text(across, first - place * gap, name, transform=ax.transAxes, color=colour, va="center", fontsize=8.5, fontweight="bold")


def label_ends(ax: Axes, ends: Sequence[tuple[float, float, str, str]], height_in: float) -> None:
    """As `label_lines`, but lines that stop before the panel's right edge are named where they stop, above their last point."""
    right, bottom = ax.get_xlim()[1], ax.get_ylim()[0]
    label_lines(ax, [end for end in ends if end[0] >= right], height_in)
    to_share = ax.transData + ax.transAxes.inverted()
    for x in sorted({end[0] for end in ends if end[0] < right}):
        mine = [end for end in ends if end[0] == x]
        placed = spread_labels(
            [float(to_share.transform((x, y))[1]) + 0.08 / height_in for _, y, _, _ in mine], 0.155 / height_in, 0.02, 1.02
        )
        across = float(to_share.transform((x, bottom))[0]) + 0.02
        for (_, _, name, colour), share in zip(mine, placed, strict=True):
            ax.text(across, share, name, transform=ax.transAxes, color=colour, va="center", ha="left", fontsize=8.5, fontweight="bold")


def gaps(table: pd.DataFrame) -> str:
    """Which points of the table have no figure and why: "Missing: Exp2 on 8 GPUs, batch 256 a GPU (out of memory: ...)"."""
    parts = []
    for name, panel in panels(table):
        for _, row in panel[panel["n"] == 0].iterrows():
            on = devices_text(row["devices"], row["device_type"])
            parts.append(f"{line_name(row, table)} on {on}, {name} ({why_missing(row)})")
    return f" Missing: {'; '.join(parts)}." if parts else ""


def left_out(every: Sequence[object], shown: Sequence[object]) -> str:
    """For a caption: how many jobs have no panel, since there is nothing to compare in them; "" where all have one."""
    lost = len(every) - len(shown)
    return f" Left out: {plural(lost, 'job')} with one placement alone." if lost else ""


def common(table: pd.DataFrame, repeats: bool = True) -> str:
    """The end of every caption: what all points share, how often each was measured (if `repeats`), where."""
    shared = constants(table, ["scaling", "precision", "execution", "layout", "input_label", "sequence_length", "framework"])
    parts = [shared, repeats_text(table) if repeats else "", ", ".join(dict.fromkeys(table["machine"]))]
    text = "; ".join(part for part in parts if part) + "."
    text = text[:1].upper() + text[1:]
    flags = sum(1 for value in table["flags"] if value)
    return text + (f" {flags} of {len(table)} points carry a flag (see the Records)." if flags else "")
