"""Four kinds of plot on one theme: dots with intervals, lines, bars, and a timeline of steps.

Each takes rows of a frame and names of its columns, draws with seaborn, and returns a `Picture` that holds its words and its data. A hue
"placement" has each placement's own colour and marker; of a hue "framework" lines differ in their dashes. `file` is the name under which
a page saves the picture, `link` where its points stand in the explorer ("model=resnet50").
"""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns

from multigpu.analysis.canvas import axis, below, canvas, counts, hues, legend, panel_grid, said, shown_columns
from multigpu.analysis.estimate import FORMS
from multigpu.analysis.picture import Picture
from multigpu.analysis.style import FRAMEWORK_LINES, INK, MAX_LINES, RC, label

PARTS = {
    "compute": ("#0072b2", ""),
    "launching": ("#b8b8b8", "///"),
    "host_work": ("#aa3377", "\\\\\\"),
    "skew": ("#cc79a7", "..."),
    "communication": ("#d55e00", "xx"),
    "host_copies": ("#b07a00", "--"),
    "peer_copies": ("#009e73", "oo"),
    "input": ("#6a5acd", "++"),
}
"""Of each part of a step that every page may show: colour and hatch."""


STEP = {
    "compute_s": "computes",
    "communication_s": "communicates",
    "host_copies_s": "copies to and from the host",
    "host_work_s": "the host sums and updates",
    "skew_s": "launch skew",
    "launching_s": "waits for launches",
}
"""The parts of a traced step (`Study.traces`), in order: column -> what the legend calls it."""


def dots(
    rows: pd.DataFrame,
    x: str,
    y: str,
    title: str,
    caption: str,
    hue: str | None = None,
    panel: str | None = None,
    form: str = "times",
    xlabel: str = "",
    line_at: float | None = None,
    alt: str = "",
    file: str = "",
    link: str = "",
    labels: Mapping[str, str] | None = None,
) -> Picture:
    """A dot a row with its 95% interval, the rows' names down the side.

    Args:
        rows: in the order in which they stand. x: a column with `<x>_low` and `<x>_high`. y: the column of names.
        hue: the column of colours (default: y). form: how the axis writes figures. line_at: a vertical line ("no difference").
        labels: name -> what the side says instead; placements have their own.

    Raises:
        Missing: there is no row.
    """
    panels = panel_grid(rows, panel)
    with mpl.rc_context(RC):
        most = max(group[y].nunique() for _, group in panels)
        picture, axes = canvas(title, len(panels), 0.62 + 0.24 * most, share_x=True, share_y=False, columns=1 if len(panels) == 1 else 2)
        values, colours, markers = hues(rows, hue or y)
        for ax, (name, group) in zip(axes, panels, strict=True):
            names = list(dict.fromkeys(group[y].astype(str)))
            for _, row in group.iterrows():
                at, key = len(names) - 1 - names.index(str(row[y])), str(row[hue or y])
                low, high = row.get(f"{x}_low", np.nan), row.get(f"{x}_high", np.nan)
                if not pd.isna(low):
                    ax.plot([low, high], [at, at], color=colours[key], linewidth=2.2, alpha=0.55, solid_capstyle="round")
                face = "none" if pd.isna(low) else colours[key]
                ax.plot([row[x]], [at], marker=markers[key], color=colours[key], markerfacecolor=face, linestyle="none", markersize=6)
            shown = [(labels or {}).get(one, label(one)) for one in names]
            ax.set_yticks(range(len(names) - 1, -1, -1), shown)
            ax.set_ylim(-0.6, len(names) - 0.4)
            ax.set_title(name)
            if line_at is not None:
                ax.axvline(line_at, color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
            axis(ax, "x", form, xlabel)
            ax.grid(axis="y", visible=False)
        if hue not in (None, y):
            legend(picture, values, colours, markers)
    return said(picture, shown_columns(rows, [panel, y, hue, x]), caption, alt, file, link)


def lines(
    rows: pd.DataFrame,
    x: str,
    y: str,
    title: str,
    caption: str,
    hue: str = "placement",
    style: str | None = None,
    panel: str | None = None,
    form: str = "times",
    xlabel: str = "",
    ylabel: str = "",
    ideal: str | None = None,
    log: str = "x",
    at: Mapping[str, float] | None = None,
    alt: str = "",
    file: str = "",
    link: str = "",
    xform: str | None = None,
) -> Picture:
    """A line a hue over counts, with the interval of each point and a label at its end.

    Args:
        rows: x is a count (GPUs, images a batch) or, with "x" not in `log`, any number; y has `<y>_low` and `<y>_high`.
        style: a column whose values differ in dashes (framework). ideal: "x" draws y = x as a thin line (perfect scaling).
        log: which axes are logarithmic: "x", "y", "xy" or "". at: name -> height of a horizontal line with that name (a limit).
        xform: how the axis writes x where it is no count ("bytes"), at five to seven of its values.

    Raises:
        Missing: there is no row.
        ValueError: more than seven lines in a panel.
    """
    panels = panel_grid(rows, panel)
    with mpl.rc_context(RC):
        picture, axes = canvas(title, len(panels), 2.9 if len(panels) < 3 else 2.4)
        values, colours, markers = hues(rows, hue)
        for ax, (name, group) in zip(axes, panels, strict=True):
            keys = [hue, style] if style else [hue]
            series = list(group.groupby(keys, sort=False, observed=True))
            if len(series) > MAX_LINES:
                raise ValueError(
                    f"{len(series)} lines in one panel: at most {MAX_LINES} can be told apart; choose fewer rows or use panels"
                )
            for key, own in series:
                own, first = own.sort_values(x), str(key[0])
                dashes = FRAMEWORK_LINES.get(str(key[1]), "-") if style else "-"
                sns.lineplot(data=own, x=x, y=y, color=colours[first], marker=markers[first], linestyle=dashes, errorbar=None, ax=ax)
                if f"{y}_low" in own:
                    ax.fill_between(own[x].astype(float), own[f"{y}_low"], own[f"{y}_high"], color=colours[first], alpha=0.15, linewidth=0)
            if ideal == "x":
                ends = [group[x].min(), group[x].max()]
                ax.plot(ends, ends, color=INK, linewidth=0.8, linestyle=(0, (3, 2)))
            for text, height in (at or {}).items():
                ax.axhline(height, color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
                ax.annotate(text, (0.02, height), xycoords=("axes fraction", "data"), va="bottom", fontsize=8)
            if xform:
                known = sorted(group[x].unique())
                counts(ax, known[:: -(-len(known) // 7)], FORMS[xform])
            elif "x" in log:
                counts(ax, list(group[x])) if group[x].nunique() <= 8 else ax.set_xscale("log")
            if "y" in log:
                ax.set_yscale("log")
            ax.set_title(name)
            axis(ax, "y", form, ylabel)
            ax.set_xlabel(xlabel or x.replace("_", " "))
        legend(picture, values, colours, markers)
    return said(picture, shown_columns(rows, [panel, hue, style, x, y]), caption, alt, file, link)


def bars(
    rows: pd.DataFrame,
    x: str,
    y: str,
    title: str,
    caption: str,
    hue: str | None = None,
    panel: str | None = None,
    form: str = "rate",
    xlabel: str = "",
    line_at: float | None = None,
    alt: str = "",
    file: str = "",
    link: str = "",
    labels: Mapping[str, str] | None = None,
) -> Picture:
    """Horizontal bars with intervals, grouped by hue: for amounts that start at nought.

    Args:
        x: the amount, with `<x>_low` and `<x>_high` where known. y: the names down the side, in the rows' order.

    Raises:
        Missing: there is no row.
    """
    panels = panel_grid(rows, panel)
    with mpl.rc_context(RC):
        most = max(len(group) for _, group in panels)
        picture, axes = canvas(title, len(panels), 0.75 + 0.2 * most, share_x=True, share_y=False, columns=1 if len(panels) == 1 else 2)
        values, colours, _ = hues(rows, hue or y)
        for ax, (name, group) in zip(axes, panels, strict=True):
            shown = group.assign(**{y: [(labels or {}).get(str(one), label(str(one))) for one in group[y]]})
            keys = shown[hue].astype(str) if hue else group[y].astype(str)
            palette = {**colours, **{label(value): colour for value, colour in colours.items()}}
            sns.barplot(
                data=shown.assign(_hue=keys), x=x, y=y, hue="_hue", palette=palette, errorbar=None, legend=False, ax=ax, saturation=1
            )
            if f"{x}_low" in group and group[f"{x}_low"].notna().any() and not hue:
                at = range(len(group))
                span = [group[x] - group[f"{x}_low"], group[f"{x}_high"] - group[x]]
                ax.errorbar(group[x], at, xerr=np.nan_to_num(np.array(span, dtype=float)), fmt="none", ecolor=INK, elinewidth=1)
            if line_at is not None:
                ax.axvline(line_at, color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
            ax.set_title(name)
            ax.set_ylabel("")
            axis(ax, "x", form, xlabel)
            ax.grid(axis="y", visible=False)
        if hue:
            legend(picture, values, colours, {})
    return said(picture, shown_columns(rows, [panel, y, hue, x]), caption, alt, file, link)


def timeline(
    rows: pd.DataFrame,
    y: str,
    title: str,
    caption: str,
    parts: Mapping[str, str] = STEP,
    panel: str | None = None,
    xlabel: str = "milliseconds of one step",
    alt: str = "",
    file: str = "",
    link: str = "",
    labels: Mapping[str, str] | None = None,
) -> Picture:
    """One step a row as a bar in parts, all on one axis of milliseconds.

    Args:
        rows: a column of seconds a part. y: the names down the side.
        parts: column -> what the legend calls it, in order; those that no row has are left out.

    Raises:
        Missing: there is no row.
    """
    panels = panel_grid(rows, panel)
    parts = {column: text for column, text in parts.items() if column in rows and rows[column].gt(0).any()}
    with mpl.rc_context(RC):
        most = max(len(group) for _, group in panels)
        picture, axes = canvas(title, len(panels), 0.75 + 0.3 * most, share_y=False, columns=1)
        for ax, (name, group) in zip(axes, panels, strict=True):
            left = np.zeros(len(group))
            shown = [(labels or {}).get(str(one), label(str(one))) for one in group[y]]
            for column in parts:
                colour, hatch = PARTS[column.removesuffix("_s")]
                width = 1e3 * group[column].fillna(0).to_numpy(dtype=float)
                ax.barh(range(len(group)), width, left=left, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4, height=0.66)
                left += width
            ax.set_yticks(range(len(group)), shown)
            ax.invert_yaxis()
            ax.set_title(name)
            ax.set_xlabel(xlabel)
            ax.grid(axis="y", visible=False)
        looked = [(PARTS[column.removesuffix("_s")], text) for column, text in parts.items()]
        handles = [mpl.patches.Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=text) for (colour, hatch), text in looked]
        below(picture, handles)
    return said(picture, shown_columns(rows, [panel, y, *parts]), caption, alt, file, link)
