"""Of what a step consists, a bar a placement and way: the device's own time first, then all that it waited for."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.patches import Patch

from multigpu.analysis.causes import PARTS
from multigpu.analysis.layout import grid_of_axes, margin_for, name_panel, rows_from_top
from multigpu.analysis.picture import Picture, head_height, message
from multigpu.analysis.style import INK, RC, look
from multigpu.analysis.wording import MODEL_NAMES, describe, devices_text, missing, percent_text, plural

WIDTH, ROW, LINE = 5.0, 0.24, 0.2
BEFORE, PALE = "*", 0.5
"""Mark and strength of a bar whose step only a traced Run timed: no untraced Record says how long it is."""


def bar_name(row: Any) -> str:
    """The placement, and how it was carried out where that is not eager with a process a device."""
    how = [] if row["execution"] == "eager" else [str(row["execution"]).replace("_", " and ")]
    how += ["one process"] if row["processes"] == "one" else []
    how += [f"{row['micro_batches']} micro-batches"] if not missing(row["micro_batches"]) and row["micro_batches"] > 1 else []
    return ", ".join([look(row["placement"]).label, *how])


def _label(row: Any) -> str:
    """`bar_name`, marked where the step's length is not of untraced Records."""
    return bar_name(row) + ("" if row["untraced"] else BEFORE)


def figure_causes(causes: pd.DataFrame) -> Picture:
    """The traced Runs of `causes` (of `causes_frame`) on the most devices of their job, a panel a job, shortest step on top.

    The picture's data hold the Runs on fewer devices too.
    """
    if causes.empty:
        return message("No step to take apart: no Record holds a trace.")
    drawn = causes[causes["devices"] == causes.groupby(["model", "batch_size"])["devices"].transform("max")]
    groups = [group.sort_values("timed_step_s") for _, group in drawn.groupby(["model", "batch_size"])]
    models = [*MODEL_NAMES]
    groups.sort(key=lambda group: models.index(group["model"].iloc[0]) if group["model"].iloc[0] in models else len(models))
    names = [describe(group.iloc[0], ["model", "batch_size", "precision"]) for group in groups]
    names = [f"{name}, {devices_text(g.iloc[0]['devices'], g.iloc[0]['device_type'])}" for name, g in zip(names, groups, strict=True)]
    starred = any((group["untraced"] == 0).any() for group in groups)
    heights = [ROW * len(group) + 0.1 for group in groups]
    with mpl.rc_context(RC):
        left = margin_for([_label(row) for group in groups for _, row in group.iterrows()])
        finding = _finding(groups)
        picture, axes = grid_of_axes(len(groups), finding, WIDTH, heights, 1, left=left, legend=True, names=names, row_gap=0.95)
        for ax, name, group in zip(axes, names, groups, strict=True):
            name_panel(ax, name)
            for index, (_, row) in enumerate(group.iterrows()):
                start = 0.0
                for part, (_, colour, hatch) in PARTS.items():
                    width = 1e3 * row[f"{part}_s"]
                    bar = ax.barh(len(group) - 1 - index, width, 0.7, left=start, color=colour, hatch=hatch, edgecolor=INK, linewidth=0.3)
                    bar[0].set_alpha(1.0 if row["untraced"] else PALE)
                    start += width
            ax.set_yticks(range(len(group)), [_label(row) for _, row in group.iloc[::-1].iterrows()])
            rows_from_top(ax, len(group), len(group))
            ax.grid(axis="y", visible=False)
            ax.set_xlim(0, None)
            ax.set_xlabel("ms a step, weak scaling")
        patches = [Patch(facecolor=c, hatch=h, edgecolor=INK, linewidth=0.4, label=label) for label, c, h in PARTS.values()]
        _legend(picture, patches)
    picture.data = causes.drop(columns=[name for name in causes if causes[name].isna().all()])
    picture.caption = (
        "The replica that waited least for others, of each Run's step without a profiler. The device's parts are as traced; the profiler "
        "slows the host, so its parts share what is left of that step as they did in the traced one. “Host launches” is all idle time that "
        "nothing else explains, and so also holds waiting for another replica's copies at a barrier. Eager unless it says captured; n = 1 "
        f"(screening). {', '.join(dict.fromkeys(causes['machine']))}."
        + (" Pale, with a star: no untraced Record; as long as the traced Run's steps before its profiler began." if starred else "")
        + (f" {plural(len(causes) - len(drawn), 'Run')} on fewer devices: in the data." if len(causes) > len(drawn) else "")
    )
    picture.alt = "Bars of a step's parts. " + "; ".join(
        f"{bar_name(row)}: {1e3 * row['timed_step_s']:.3g} ms" for group in groups for _, row in group.iterrows()
    )
    return picture


def _legend(picture: Picture, patches: list[Patch]) -> None:
    """Six labels are too long for one line: two lines of three, for which the picture grows by a line."""
    width, height = picture.get_size_inches()
    share = height / (height + LINE)
    picture.set_size_inches(width, height + LINE)
    for ax in picture.axes:
        box = ax.get_position()
        ax.set_position((box.x0, box.y0 * share, box.width, box.height * share))
    top = 1 - (head_height(picture.finding, width) - 0.05) / (height + LINE)
    corner = (0.04 / width, top)
    picture.legend(handles=patches, loc="upper left", bbox_to_anchor=corner, ncols=3, columnspacing=1.4, borderpad=0, labelspacing=0.25)


def _finding(groups: list[pd.DataFrame]) -> str | None:
    """How differently long the steps are and how equal the device's own part of them, where the steps differ most; of untraced Records."""
    groups = [own for group in groups if len(own := group[group["untraced"] > 0])]
    if not groups:
        return None
    group = max(groups, key=lambda rows: rows["timed_step_s"].max() / rows["timed_step_s"].min())
    eager = group[group["execution"] == "eager"]
    if len(eager) < 2:
        return None
    times = eager["timed_step_s"].max() / eager["timed_step_s"].min()
    apart = eager["compute_s"].max() / eager["compute_s"].min() - 1
    if times < 1.1 or apart > times - 1:
        return None
    return f"Eager steps of one job differ {times:.1f} times between placements; what the device computes differs by {percent_text(apart)}"
