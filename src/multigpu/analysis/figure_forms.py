"""What capturing gives over eager and what compiling gives over captured, a row a model: the host's part of a step beside the kernels'."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.lines import Line2D

from multigpu.analysis.cnn_forms import FORMS, GRID, forms, job_name
from multigpu.analysis.figure_ladder import FORMS as LOOKS
from multigpu.analysis.layout import grid_of_axes, margin_for, rows_from_top
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import INK, RC
from multigpu.analysis.wording import joined, missing, ratio_text

WIDTH, ROW = 4.2, 0.3
MARKS = {
    "capturing": (LOOKS["captured"], "captured over eager"),
    "compiling": (LOOKS["compiled_captured"], "compiled, captured over captured"),
}
"""Of each ratio: colour and marker as everywhere of the form above, and its name."""
APART = 0.17
"""Of a row's height, from its middle to each of its two marks."""


def figure_forms(frame: pd.DataFrame, devices: int = 1) -> Picture:
    """The two ratios of `cnn_forms.forms` that part the host's part of a step from the kernels', with intervals.

    frame: each row under the machine that measured it (`cnn_page.as_measured`).
    """
    table = forms(frame, devices)
    table = table[table[list(MARKS)].notna().any(axis=1)] if len(table) else table
    if table.empty:
        return message(f"No image model was measured in two forms of execution yet: python -m multigpu measure --grid {GRID} does.")
    rows = table.iloc[::-1].reset_index(drop=True)
    names = [job_name(row) for _, row in rows.iterrows()]
    with mpl.rc_context(RC):
        picture, (ax,) = grid_of_axes(1, _finding(table), WIDTH, ROW * len(rows) + 0.2, 1, left=margin_for(names), legend=True)
        ends = []
        for name, place in zip(MARKS, (APART, -APART), strict=True):
            (colour, marker, _), _ = MARKS[name]
            for y, (_, row) in enumerate(rows.iterrows()):
                if missing(row[name]):
                    continue
                ends.append(row[name])
                fill = "none" if name == "capturing" and row["borrowed"] else colour
                ax.plot([row[name]], [y + place], marker=marker, color=colour, mfc=fill, linestyle="none", zorder=3)
                if not missing(row[f"{name}_low"]):
                    bounds = [row[f"{name}_low"], row[f"{name}_high"]]
                    ax.plot(bounds, [y + place] * 2, color=colour, linewidth=3, alpha=0.4, solid_capstyle="butt")
        ax.axvline(1, color=INK, linewidth=1)
        ax.set_xlim(min(0.9, min(ends) - 0.1), max(ends) * 1.12)
        ax.set_yticks(range(len(rows)), names)
        rows_from_top(ax, len(rows), len(rows))
        ax.spines["left"].set_visible(False)
        ax.set_xlabel("ratio of images/s")
        looks = [(look[0], look[1], label) for look, label in MARKS.values()]
        picture.legend_line([Line2D([], [], color=colour, marker=marker, linestyle="none", label=label) for colour, marker, label in looks])
    picture.caption = (
        "Captured over eager: what the host costs a step that it launches kernel by kernel. Compiled, captured over captured: what "
        f"compiled kernels give, with no host in either. PyTorch, ddp, one GPU, bf16.{_hollow(table)} Bars: 95%, cut by the axis where "
        f"wider; marks without: a side was measured once (screening). {_machines(table)}"
    )
    columns = ["model", "batch_size", "machine", "host", *(f"{name}{end}" for name in MARKS for end in ("", "_low", "_high"))]
    picture.data = table[[*columns, *(f"{form}_n" for form in FORMS)]]
    picture.alt = "Two dots a model, ratios of rates. " + "; ".join(_told(row) for _, row in table.iterrows()) + "."
    return picture


def _hollow(table: pd.DataFrame) -> str:
    return " Hollow: eager and captured steps of two machines with the same GPUs." if table["borrowed"].any() else ""


def _machines(table: pd.DataFrame) -> str:
    names = list(dict.fromkeys([*table["machine"], *table["host"]]))
    return f"{joined([name for name in names if name])}."


def _finding(table: pd.DataFrame) -> str | None:
    """For how many models capturing gives more than compiling does."""
    both = table[table[list(MARKS)].notna().all(axis=1)]
    if both.empty:
        return None
    host = int((both["capturing"] > both["compiling"]).sum())
    return f"Capturing an eager step gives more than compiling a captured one in {host} of {len(both)} models"


def _told(row: Any) -> str:
    parts = [f"{label} {ratio_text(row[name])}" for name, (_, label) in MARKS.items() if not missing(row[name])]
    return f"{job_name(row)}: {', '.join(parts)}"
