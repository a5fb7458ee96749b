"""Where perfect strong scaling goes: what is kept, what each device's smaller batch takes, and what merging takes."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from multigpu.analysis.layout import common, grid_of_axes, margin_for, rows_from_top
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import INK, RC
from multigpu.analysis.wording import describe, devices_text, missing, percent_text

WIDTH, ROW = 4.6, 0.28
PARTS = {
    "kept": ("kept", "#0072b2", ""),
    "lost_batch": ("lost to a smaller batch", "#d55e00", "///"),
    "lost_merging": ("lost to merging", "#b07a00", "..."),
}
"""Of each part of N times one device: label, colour, hatch."""


def named(row: Any) -> str:
    """Model, joined batch and devices of a row of `strong_points`."""
    return f"{describe(row, ['model', 'bucket_send'])}, {row['joined']:,} images, {devices_text(row['devices'], row['device_type'])}"


def figure_strong(table: pd.DataFrame) -> Picture:
    """A bar a row of `strong.strong_points` whose parts are known, shared out among what is kept and what is lost.

    A part below nothing (a share of less than 0, which is noise) is not drawn; the table tells it.
    """
    rows = table[table["of_batch"].notna()] if len(table) else table
    if rows.empty:
        return message(
            "Nothing to draw: no joined batch was measured on one GPU and on several with the step of each one's share beside it."
        )
    drawn = rows.iloc[::-1].reset_index(drop=True)
    with mpl.rc_context(RC):
        left = margin_for([named(row) for _, row in drawn.iterrows()])
        picture, (ax,) = grid_of_axes(1, _finding(rows), WIDTH, ROW * len(drawn) + 0.2, 1, left=left, legend=True)
        for y, (_, row) in enumerate(drawn.iterrows()):
            start = 0.0
            for name, (_, colour, hatch) in PARTS.items():
                share = max(0.0, float(row[name]))
                ax.barh(y, share, left=start, height=0.66, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4)
                start += share
            if not missing(row["speedup_low"]):
                ends = [row[f"speedup_{end}"] / row["devices"] for end in ("low", "high")]
                ax.plot(ends, [y, y], color=INK, linewidth=1.6)
        ax.axvline(1, color=INK, linewidth=1)
        ax.set_xlim(0, 1.02)
        ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        ax.set_yticks(range(len(drawn)), [named(row) for _, row in drawn.iterrows()])
        rows_from_top(ax, len(drawn), len(drawn))
        ax.spines["left"].set_visible(False)
        ax.set_xlabel("share of perfect strong scaling")
        picture.legend_line(
            [Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=label) for label, colour, hatch in PARTS.values()]
        )
    picture.caption = (
        "One joined batch shared out, as parts of N times the one GPU that takes all of it. Lost to a smaller batch: what one GPU alone is "
        "slower with its share. Lost to merging: what N of them lose beside N times that. Black: the 95% interval of what is kept; rows "
        f"without one were measured once. {common(rows.assign(scaling='strong'))}"
    )
    columns = ["model", "joined", "devices", "own", "execution", "precision", "bucket_send", "speedup", "speedup_low", "speedup_high"]
    picture.data = rows[[*columns, *PARTS, "n", "base_n"]]
    shares = (
        f"{named(row)}: " + ", ".join(f"{PARTS[name][0]} {percent_text(max(0.0, row[name]))}" for name in PARTS)
        for _, row in rows.iterrows()
    )
    picture.alt = "Stacked bars of perfect strong scaling. " + "; ".join(shares)
    return picture


def _finding(rows: pd.DataFrame) -> str:
    """Of how many rows the smaller batch takes more than merging does."""
    more = int((rows["lost_batch"] > rows["lost_merging"]).sum())
    return f"Strong scaling: the smaller batch takes more than merging in {more} of {len(rows)} points"
