"""Ratios of two points that differ in one thing, a row each, with their intervals and the line of no difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd

from multigpu.analysis.layout import common, grid_of_axes, margin_for, name_panel, rows_from_top
from multigpu.analysis.pairs import EQUAL, FASTER, ONCE, SLOWER
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import INK, RC, look
from multigpu.analysis.wording import describe, devices_text, joined, missing, plural, ratio_text

WIDTH, ROW = 4.4, 0.26
COLOURS = {FASTER: "#0072b2", SLOWER: "#d55e00", EQUAL: "#808080", ONCE: "#808080"}
MARKERS = {FASTER: ">", SLOWER: "<", EQUAL: "o", ONCE: "$\u25d0$"}


NAMING = ("model", "batch_size", "devices", "placement", "framework", "precision", "execution", "all_reduce_spec", "wire_dtype", "machine")
"""Fields that name a row, in this order."""


def named(row: Any, fields: Sequence[str]) -> str:
    """These fields of a row in words."""
    words = {"devices": lambda: devices_text(row["devices"], row["device_type"]), "placement": lambda: look(row["placement"]).label}
    return ", ".join(filter(None, (words[name]() if name in words else describe(row, [name]) for name in fields)))


def shared_fields(table: pd.DataFrame) -> list[str]:
    """Of `NAMING`, the fields equal in all rows, which need not stand in every name; none where the rows would have no name left."""
    same = [name for name in NAMING if table[name].nunique(dropna=False) == 1]
    return same if len(same) < len(NAMING) else same[1:]


def implied_by_framework(table: pd.DataFrame) -> list[str]:
    """Of placement and execution those that every framework has one of, where there are several: the caption tells them once."""
    own = table.groupby("framework")
    if len(own) < 2:
        return []
    return [name for name in ("placement", "execution") if table[name].nunique() > 1 and (own[name].nunique() == 1).all()]


def figure_ratios(table: pd.DataFrame, what: str, nothing: str, published: Callable[[Any], float] | None = None) -> Picture:
    """Every row of `pairs.paired` as a dot.

    Args:
        what: what the ratio is, for the axis.
        nothing: the sentence where there is no row.
        published: a row -> the document's ratio, drawn hollow.
    """
    if table.empty:
        return message(nothing)
    rows = table.iloc[::-1].reset_index(drop=True)
    same = shared_fields(table)
    implied = implied_by_framework(table)
    telling = [field for field in NAMING if field not in (*same, *implied)]
    shorter = [field for field in telling if field != "machine"]  # the caption names the machines
    times = Counter(named(row, shorter) for _, row in rows.iterrows())

    def name(row: Any) -> str:
        short = named(row, shorter)
        return short if times[short] == 1 else named(row, telling)

    with mpl.rc_context(RC):
        left = margin_for([name(row) for _, row in rows.iterrows()])
        picture, (ax,) = grid_of_axes(1, _finding(table, what), WIDTH, ROW * len(rows) + 0.2, 1, left=left, names=[what])
        name_panel(ax, what)
        for y, (_, row) in enumerate(rows.iterrows()):
            colour = COLOURS[row["verdict"]]
            ax.plot([row["ratio"]], [y], marker=MARKERS[row["verdict"]], color=colour, linestyle="none", zorder=3)
            if not missing(row["ratio_low"]):
                ax.plot([row["ratio_low"], row["ratio_high"]], [y, y], color=colour, linewidth=3, alpha=0.45, solid_capstyle="butt")
            if published is not None:
                ax.plot([published(row)], [y], marker="D", mfc="none", mec=INK, markersize=4.5, linestyle="none")
        ax.axvline(1, color=INK, linewidth=1)
        ax.set_yticks(range(len(rows)), [name(row) for _, row in rows.iterrows()])
        rows_from_top(ax, len(rows), len(rows))
        ax.spines["left"].set_visible(False)
        ax.set_xlabel("ratio of images/s, weak scaling")
    hollow = " Hollow: the document's typical figure, another machine." if published is not None else ""
    every = named(table.iloc[0], [field for field in same if field in ("model", "batch_size", "devices", "placement")])
    every = f" Every row: {every}." if every else ""
    if implied:
        ways = [named(own.iloc[0], ["framework", *implied]).replace(", ", ": ", 1) for _, own in table.groupby("framework", sort=False)]
        every += f" {'; '.join(ways)}."
    picture.caption = f"{what}.{every} The line: no difference. Half circles: measured once, no interval.{hollow} {common(table)}"
    columns = ["model", "placement", "devices", "precision", "execution", "ratio", "ratio_low", "ratio_high", "verdict", "n"]
    picture.data = table[columns]
    picture.alt = f"Dots of ratios, {what}. " + "; ".join(f"{name(row)}: {_ratio(row)}" for _, row in table.iterrows())
    return picture


def _ratio(row: Any) -> str:
    return ratio_text(row["ratio"], row["ratio_low"], row["ratio_high"])


def _finding(table: pd.DataFrame, what: str) -> str | None:
    """How many points lie on which side, of those with an interval; each precision by itself, fp32 first, since its kernels are its own."""
    exact = table[table["verdict"] != ONCE]
    if exact.empty:
        return None
    several = exact["precision"].nunique() > 1
    parts = [
        f"{f'in {name} ' if several else ''}{_counted(own)}"
        for name, own in sorted(exact.groupby("precision"), key=lambda one: (one[0] != "fp32", one[0]))
    ]
    return f"{what}: {'; '.join(parts)}"


def _counted(rows: pd.DataFrame) -> str:
    counts = rows["verdict"].value_counts()
    parts = [f"{word} in {counts[word]}" for word in (FASTER, SLOWER, EQUAL) if counts.get(word)]
    return f"{joined(parts)} of {plural(len(rows), 'point')}"
