"""A against A: what one launch gives over another, where nothing differs but the processes. Its intervals should hold 1."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd

from multigpu.analysis.findings import line_name, panels
from multigpu.analysis.formulas import pooled_rate, ratio_interval
from multigpu.analysis.layout import common
from multigpu.analysis.metrics import summary
from multigpu.analysis.picture import Picture, head_height, message
from multigpu.analysis.style import INK, RC, look
from multigpu.analysis.wording import devices_text, percent_text

COLUMNS = ["panel", "placement", "framework", "devices", "first", "second", "ratio", "low", "high", "holds_one"]


def launch_ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Of every point with at least two repeats in each of two launches: the second launch's rate over the first's.

    Launches are in order of time. The interval is that of any ratio of this study (95%, Welch's t on log rates), so about
    one in twenty misses 1 by chance if launches do not matter; more say that launches differ, and that repeats within one
    launch understate the spread.

    Returns:
        panel, placement, framework, devices, first and second (repeats), ratio, low, high, holds_one.
    """
    rows = []
    points = summary(frame)
    for name, panel in panels(points[points["launches"] >= 2]):
        for _, point in panel.iterrows():
            own = (
                frame[frame["key"].isin(str(point["keys"]).split(", "))]
                if isinstance(point["keys"], str)
                else frame[frame["key"].isin(point["keys"])]
            )
            own = own[own["status"] == "ok"].sort_values("measured_at")
            groups = [group for _, group in own.groupby("launch_id", sort=False)]
            if len(groups) < 2 or min(len(group) for group in groups[:2]) < 2:
                continue
            a, b = ((group["units"].to_numpy(float), group["wall_s"].to_numpy(float)) for group in groups[:2])
            low, high = ratio_interval(*b, *a)
            ratio = pooled_rate(*b) / pooled_rate(*a)
            rows.append(
                (
                    name,
                    point["placement"],
                    point["framework"],
                    int(point["devices"]),
                    len(a[0]),
                    len(b[0]),
                    ratio,
                    low,
                    high,
                    low <= 1 <= high,
                )
            )
    return pd.DataFrame(rows, columns=COLUMNS)


def figure_launches(frame: pd.DataFrame) -> Picture:
    """Every point's ratio of launches with its interval, a row a point, sorted; a line at 1."""
    table = launch_ratios(frame)
    if table.empty:
        return message("No point was measured twice in each of two launches yet.")
    table = table.sort_values("ratio").reset_index(drop=True)
    held = int(table["holds_one"].sum())
    finding = f"{held} of {len(table)} intervals of one launch over another hold 1"
    height, width = 0.075 * len(table) + 0.3, 5.6
    with mpl.rc_context(RC):
        full = head_height(finding, width) + height + 0.75
        picture = Picture(width, full)
        picture.head(finding)
        ax = picture.add_axes((0.35 / width, 0.5 / full, (width - 0.6) / width, height / full))
        for y, (_, row) in enumerate(table.iterrows()):
            style = look(row["placement"])
            ax.plot([row["low"], row["high"]], [y, y], color=style.colour, linewidth=1.6, alpha=0.9 if row["holds_one"] else 0.45)
            ax.plot([row["ratio"]], [y], marker=style.marker, color=style.colour, markersize=3.5, linestyle="none")
        ax.axvline(1, color=INK, linewidth=0.8)
        ax.set_yticks([])
        ax.set_ylim(-1, len(table))
        ax.set_xlabel("rate of the second launch / rate of the first")
    placements = ", ".join(dict.fromkeys(line_name(row, table) for _, row in table.iterrows()))
    worst = table.iloc[int((table["ratio"] - 1).abs().to_numpy().argmax())]
    picture.caption = (
        f"A row a point, sorted; colours and marks are those of the placements ({placements}). 95% intervals; the largest difference is "
        f"{percent_text(abs(worst['ratio'] - 1))} ({worst['panel']}, {line_name(worst, table)}, "
        f"{devices_text(worst['devices'], 'cuda' if frame['device_type'].iloc[0] == 'cuda' else 'cpu')}). {common(summary(frame))}"
    )
    picture.data = table
    picture.alt = f"Ratios of two launches of {len(table)} points around 1; {finding}."
    return picture
