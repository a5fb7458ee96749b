"""Four kinds of plot on one theme: dots with intervals, lines, bars, and a timeline of steps.

Each takes rows of a frame and names of its columns, draws with seaborn, and returns a `Picture` that holds its words and its data. A hue
"placement" has each placement's own colour and marker; of a hue "framework" lines differ in their dashes. `file` is the name under which
a page saves the picture, `link` where its points stand in the explorer ("model=resnet50").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from multigpu.analysis.estimate import FORMS
from multigpu.analysis.picture import Picture, head_height
from multigpu.analysis.points import Missing
from multigpu.analysis.style import FRAMEWORK_LINES, INK, MARKERS, MAX_LINES, OTHERS, RC, in_order, label, look

WIDTH_IN = 6.4
"""Of every figure: at a telephone's width its letters are still read, since narrower drawings scroll in their own box."""

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


def _panel_grid(rows: pd.DataFrame, panel: str | None) -> list[tuple[str, pd.DataFrame]]:
    if rows.empty:
        raise Missing("no row to draw")
    if panel is None:
        return [("", rows)]
    return [(str(name), group) for name, group in rows.groupby(panel, sort=False, observed=True)]


def _canvas(
    title: str, panels: int, height_in: float, share_x: bool = False, share_y: bool = True, columns: int = 0
) -> tuple[Picture, list[Axes]]:
    """A picture with its title and `panels` axes side by side, in rows of `columns` (0: two, or three where there are so many)."""
    columns = min(panels, columns or (3 if panels in (3, 6) else 2))
    lines = -(-panels // columns)
    top = head_height(title, WIDTH_IN) + 0.12
    picture = Picture(WIDTH_IN, lines * height_in + top, layout="constrained")
    picture.head(title)
    _under_the_title(picture)
    grid = picture.subplots(lines, columns, squeeze=False, sharex=share_x, sharey="row" if share_y else False).ravel()
    for unused in grid[panels:]:
        unused.remove()
    return picture, list(grid[:panels])


def _hues(rows: pd.DataFrame, hue: str | None) -> tuple[list[str], dict[str, str], dict[str, Any]]:
    """(values in order, colour by value, marker by value)."""
    if hue is None:
        return [], {}, {}
    values = [str(value) for value in rows[hue].dropna().unique()]
    if hue in ("placement", "base_placement"):
        values = in_order(values)
        return values, {v: look(v).colour for v in values}, {v: look(v).marker for v in values}
    colours = [OTHERS[index % len(OTHERS)] for index in range(len(values))]
    return values, dict(zip(values, colours, strict=True)), {v: MARKERS[i % len(MARKERS)] for i, v in enumerate(values)}


def _axis(ax: Axes, axis: str, form: str | None, name: str) -> None:
    getattr(ax, f"set_{axis}label")(name)
    if form:
        getattr(ax, f"{axis}axis").set_major_formatter(FuncFormatter(lambda value, _: FORMS[form](value) if value else "0"))
        getattr(ax, f"{axis}axis").set_minor_formatter(NullFormatter())


def _counts(ax: Axes, values: Sequence[float], write: Callable[[float], str] = "{:,.0f}".format) -> None:
    """Ticks at the values themselves, on a logarithmic axis: 1, 2, 4, 8."""
    ax.set_xscale("log", base=2)
    ax.set_xticks(sorted(set(values)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _said(picture: Picture, data: pd.DataFrame, caption: str, alt: str, name: str, link: str) -> Picture:
    picture.caption, picture.alt, picture.data = caption, alt or picture.finding, data
    picture.name, picture.link = name, link
    return picture


def _shown_columns(rows: pd.DataFrame, names: Sequence[str | None]) -> pd.DataFrame:
    """What stands behind a drawing: these columns with their bounds, how often each row was measured, and its Records."""
    wanted = [f"{name}{end}" for name in names if name for end in ("", "_low", "_high")]
    return rows[[name for name in dict.fromkeys([*wanted, "n", "launches", "machine", "keys", "base_keys"]) if name in rows]]


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
    panels = _panel_grid(rows, panel)
    with mpl.rc_context(RC):
        most = max(group[y].nunique() for _, group in panels)
        picture, axes = _canvas(title, len(panels), 0.62 + 0.24 * most, share_x=True, share_y=False, columns=1 if len(panels) == 1 else 2)
        values, colours, markers = _hues(rows, hue or y)
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
            _axis(ax, "x", form, xlabel)
            ax.grid(axis="y", visible=False)
        if hue not in (None, y):
            _legend(picture, values, colours, markers)
    return _said(picture, _shown_columns(rows, [panel, y, hue, x]), caption, alt, file, link)


def _legend(picture: Picture, values: Sequence[str], colours: Mapping[str, str], markers: Mapping[str, Any]) -> None:
    handles = [mpl.lines.Line2D([], [], color=colours[v], marker=markers.get(v, ""), label=label(v), linewidth=1.4) for v in values]
    _below(picture, handles)


def _below(picture: Picture, handles: Sequence[Any]) -> None:
    """The legend below the drawing, in as many columns as its words leave room for."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), 84 // (longest + 8)))
    picture.legend(handles=handles, loc="outside lower center", ncols=columns)
    whole = picture.get_figheight() + 0.19 * -(-len(handles) // columns)
    picture.set_figheight(whole)
    picture.texts[0].set_y(1 - 0.08 / whole)
    _under_the_title(picture)


def _under_the_title(picture: Picture) -> None:
    """Keep the axes below the title, whatever the picture's height."""
    top = head_height(picture.finding, WIDTH_IN) + 0.12
    picture.get_layout_engine().set(rect=(0, 0, 1, 1 - top / picture.get_figheight()))  # type: ignore[union-attr, call-arg]


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
    panels = _panel_grid(rows, panel)
    with mpl.rc_context(RC):
        picture, axes = _canvas(title, len(panels), 2.9 if len(panels) < 3 else 2.4)
        values, colours, markers = _hues(rows, hue)
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
                _counts(ax, known[:: -(-len(known) // 7)], FORMS[xform])
            elif "x" in log:
                _counts(ax, list(group[x])) if group[x].nunique() <= 8 else ax.set_xscale("log")
            if "y" in log:
                ax.set_yscale("log")
            ax.set_title(name)
            _axis(ax, "y", form, ylabel)
            ax.set_xlabel(xlabel or x.replace("_", " "))
        _legend(picture, values, colours, markers)
    return _said(picture, _shown_columns(rows, [panel, hue, style, x, y]), caption, alt, file, link)


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
    panels = _panel_grid(rows, panel)
    with mpl.rc_context(RC):
        most = max(len(group) for _, group in panels)
        picture, axes = _canvas(title, len(panels), 0.75 + 0.2 * most, share_x=True, share_y=False, columns=1 if len(panels) == 1 else 2)
        values, colours, _ = _hues(rows, hue or y)
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
            _axis(ax, "x", form, xlabel)
            ax.grid(axis="y", visible=False)
        if hue:
            _legend(picture, values, colours, {})
    return _said(picture, _shown_columns(rows, [panel, y, hue, x]), caption, alt, file, link)


def timeline(
    rows: pd.DataFrame,
    y: str,
    parts: Mapping[str, str],
    title: str,
    caption: str,
    panel: str | None = None,
    xlabel: str = "milliseconds of one step",
    alt: str = "",
    file: str = "",
    link: str = "",
    labels: Mapping[str, str] | None = None,
    looks: Mapping[str, tuple[str, str]] = PARTS,
) -> Picture:
    """One step a row as a bar in parts, all on one axis of milliseconds.

    Args:
        rows: a column of seconds a part. y: the names down the side. parts: column -> what the legend calls it, in order.
        looks: colour and hatch by part (a column's name, "_s" left out).

    Raises:
        Missing: there is no row.
    """
    panels = _panel_grid(rows, panel)
    with mpl.rc_context(RC):
        most = max(len(group) for _, group in panels)
        picture, axes = _canvas(title, len(panels), 0.75 + 0.3 * most, share_y=False, columns=1)
        for ax, (name, group) in zip(axes, panels, strict=True):
            left = np.zeros(len(group))
            shown = [(labels or {}).get(str(one), label(str(one))) for one in group[y]]
            for column in parts:
                colour, hatch = looks[column.removesuffix("_s")]
                width = 1e3 * group[column].fillna(0).to_numpy(dtype=float)
                ax.barh(range(len(group)), width, left=left, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4, height=0.66)
                left += width
            ax.set_yticks(range(len(group)), shown)
            ax.invert_yaxis()
            ax.set_title(name)
            ax.set_xlabel(xlabel)
            ax.grid(axis="y", visible=False)
        looked = [(looks[column.removesuffix("_s")], text) for column, text in parts.items()]
        handles = [mpl.patches.Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=text) for (colour, hatch), text in looked]
        _below(picture, handles)
    return _said(picture, _shown_columns(rows, [panel, y, *parts]), caption, alt, file, link)
