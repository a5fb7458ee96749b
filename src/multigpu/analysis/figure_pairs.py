"""Pairs of GPUs as matrices: one-way bandwidth, and what two of them train."""

from __future__ import annotations

import math

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes

from multigpu.analysis.layout import grid_of_axes, name_panel
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import PALETTE, RC
from multigpu.analysis.wording import MODEL_NAMES
from multigpu.measure.ceilings import Ceilings

Cells = dict[tuple[int, int], float]
LEAST_SHADE, MOST_SHADE = 0.1, 0.55
"""Of the colour under a figure: the slowest and the fastest pair; text must stay readable on both."""


def _cells_of(points: pd.DataFrame) -> Cells:
    cells: Cells = {}
    for _, row in points.iterrows():
        a, b = (int(part) for part in row["pair"].split(","))
        cells[a, b] = cells[b, a] = float(row["units_per_s"])
    return cells


def _matrix(ax: Axes, cells: Cells, scale: float, form: str) -> None:
    count = 1 + max(max(pair) for pair in cells)
    low, high = min(cells.values()), max(cells.values())
    for (i, j), value in cells.items():
        share = (value - low) / (high - low) if high > low else 1.0
        shade = LEAST_SHADE + (MOST_SHADE - LEAST_SHADE) * share
        ax.add_patch(mpl.patches.Rectangle((j + 0.03, i + 0.03), 0.94, 0.94, facecolor=PALETTE[0], alpha=shade, edgecolor="none"))
        ax.text(j + 0.5, i + 0.5, f"{value / scale:{form}}", ha="center", va="center", fontsize=8)
    ax.set_xlim(0, count)
    ax.set_ylim(count, 0)
    ax.set_xticks([i + 0.5 for i in range(count)], [str(i) for i in range(count)])
    ax.set_yticks([i + 0.5 for i in range(count)], [str(i) for i in range(count)])
    ax.grid(False)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)


def figure_pairs(ceilings: Ceilings | None, points: pd.DataFrame) -> Picture:
    """Bandwidth from the row's GPU to the column's, and images/s of every pair that trained, a panel a placement."""
    panels: list[tuple[str, Cells, float, str]] = []
    if ceilings and len(ceilings.links) > 1:
        links = {(i, j): value for i, row in enumerate(ceilings.links) for j, value in enumerate(row) if i != j}
        panels.append(("GB/s, from row to column", links, 1e9, ".0f"))
    for (model, placement), group in points[points["peer"] == "on"].groupby(["model", "placement"], sort=False):
        if group["pair"].nunique() > 1:
            panels.append((f"images/s, {MODEL_NAMES.get(str(model), str(model))}, {placement}", _cells_of(group), 1.0, ",.0f"))
    if not panels:
        return message("No pair to draw: `python -m multigpu ceilings` and `measure --grid hardware` measure pairs of GPUs.")
    count = 1 + max(max(pair) for _, cells, _, _ in panels for pair in cells)
    side = max(1.6, 0.55 * count)
    spread = {name: max(cells.values()) / min(cells.values()) - 1 for name, cells, _, _ in panels}
    worst = max(spread.values())
    finding = f"Pairs of GPUs are at most {100 * worst:.1f}% apart" if not math.isnan(worst) else None
    with mpl.rc_context(RC):
        names = [name for name, *_ in panels]
        picture, axes = grid_of_axes(len(panels), finding, side, side, names=names, label_width=0.6)
        for ax, (name, cells, scale, form) in zip(axes, panels, strict=True):
            name_panel(ax, name)
            _matrix(ax, cells, scale, form)
    machine = ceilings.machine if ceilings else ", ".join(dict.fromkeys(points["machine"]))
    picture.caption = (
        f"Rows and columns are GPUs of {machine}. Bandwidth: copies of 256 MiB one way, one pair at a time. Training: two GPUs, weak "
        "scaling; darker is faster within a panel."
    )
    picture.data = pd.DataFrame([(name, i, j, value) for name, cells, _, _ in panels for (i, j), value in cells.items()])
    picture.data.columns = pd.Index(["panel", "gpu", "peer", "value"])
    picture.alt = "; ".join(f"{name}: {100 * value:.1f}% between the slowest and the fastest pair" for name, value in spread.items()) + "."
    return picture
