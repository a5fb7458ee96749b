"""The matrix of placements as a picture: colour and number of each cell, its reason on hover."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from multigpu.analysis.matrix import NOT_MEASURED
from multigpu.analysis.picture import Picture, drawn
from multigpu.analysis.style import label
from multigpu.analysis.words import missing

DARK, LIGHT, PALE = "#101010", "#ffffff", "#e8e8e8"
"""Letters on pale and on deep colours, and the ground of a cell without a rate: none is the page's
ink, so that they stand on the cell's colour in a dark page too.
"""
TURNS_LIGHT = 0.6
"""Share of the colour's range from which letters are light."""


def heat(
    rows: pd.DataFrame, title: str, caption: str, panel: str, most: float, **words: str
) -> Picture:
    """Return a heat map of cells (`matrix.matrix`), a panel a value of the column `panel`: down the
    side the placements, below the numbers of devices; in a cell the rate over one device at its
    best and in brackets how many repeats.

    most: the ratio of the deepest colour. words: `file` and `link` (`Picture`).
    """
    reasons: dict[str, str] = {}
    names = list(dict.fromkeys(rows["placement"]))
    counts = sorted(set(rows["devices"]))

    def draw(ax: Axes, group: pd.DataFrame) -> None:
        cells = group.set_index(["placement", "devices"])
        shares = cells["best"].astype("float64").unstack().reindex(index=names, columns=counts)
        gaps: dict[str, Any] = {"linewidths": 1.5, "edgecolor": "none"}
        ax.pcolormesh(np.ma.masked_invalid(shares), cmap="Blues", vmin=0, vmax=most, **gaps)
        ax.spines[:].set_visible(False)
        ax.set(xlim=(0, len(counts)), ylim=(len(names), 0))
        ax.set_facecolor("none")
        for down, name in enumerate(names):
            for along, count in enumerate(counts):
                row = cells.loc[(name, count)]
                _write(ax, row, (along + 0.5, down + 0.5), most, reasons)
        ax.set_yticks(np.arange(len(names)) + 0.5, [label(name) for name in names], va="center")
        ax.set_xticks(np.arange(len(counts)) + 0.5, [str(count) for count in counts])
        ax.set_xlabel("GPUs")
        ax.set_ylabel("")
        ax.grid(visible=False)
        ax.tick_params(length=0)

    shown = [panel, "placement", "framework", "devices", "best", "rate", "reason"]
    picture = drawn(
        rows, draw, shown, title, caption, panel, (0.7, 0.25), 2, [], names="placement", **words
    )
    for one in (picture, picture.narrow):
        if one is not None:
            one.hovers = reasons
    return picture


def _write(
    ax: Axes, row: pd.Series, at: tuple[float, float], most: float, reasons: dict[str, str]
) -> None:
    """Write what a cell says; a cell without a rate says why when the pointer rests on it."""
    usual: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.7}
    if not missing(row["best"]):
        colour = LIGHT if row["best"] > TURNS_LIGHT * most else DARK
        ax.text(*at, f"{row['best']:.2f} ({row['n']:.0f})", color=colour, **usual)
        return
    sign = "?" if row["reason"] == NOT_MEASURED else "–"
    text = ax.text(*at, sign, color=DARK, **usual)
    text.set_bbox({"facecolor": PALE, "edgecolor": "none", "pad": 2})
    name = f"reason{len(reasons)}"
    reasons[name] = row["reason"] or "no rate of one device to compare with"
    text.set_gid(name)
