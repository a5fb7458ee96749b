"""Four kinds of plot on one theme: dots with intervals, lines, bars, and a timeline of steps, of
rows of a frame and names of its columns.

A hue "placement" has each placement's own colour and marker. A `panel` is a column whose values
have axes of their own, `form` says how an axis writes figures (`estimate.FORMS`), `words` are
`file` and `link` (`Picture`). All raise `Missing` where there is no row.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from multigpu.analysis.axes import DASHED, axis, counts, hues, key_lines, side
from multigpu.analysis.estimate import FORMS
from multigpu.analysis.picture import Picture, drawn
from multigpu.analysis.style import INK, label

STEP = {
    "compute_s": ("computes", "#0072b2", ""),
    "communication_s": ("communicates", "#d55e00", "xx"),
    "host_copies_s": ("copies to and from the host", "#b07a00", "--"),
    "host_work_s": ("the host sums and updates", "#aa3377", "\\\\\\"),
    "skew_s": ("launch skew", "#cc79a7", "..."),
    "launching_s": ("waits for launches", "#b8b8b8", "///"),
}
"""The parts of a traced step (`Study.traces`), in order: column -> legend, colour, hatch."""


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
    log: bool = False,
    direct: bool = False,
    **words: str,
) -> Picture:
    """A dot a row, in their order, with its interval, hollow where it has none, names (column y)
    down the side; hue: of colours. direct: names and figures stand above and beside the dots.
    """
    colours, markers = hues(rows, hue or y)

    def draw(ax: Axes, group: pd.DataFrame) -> None:
        names = list(dict.fromkeys(group[y].astype(str)))
        for _, row in group.iterrows():
            at, key = len(names) - 1 - names.index(str(row[y])), str(row[hue or y])
            low, high = row.get(f"{x}_low", np.nan), row.get(f"{x}_high", np.nan)
            if not pd.isna(low):
                bar: dict[str, Any] = {"color": colours[key], "linewidth": 2.2, "alpha": 0.55}
                ax.plot([low, high], [at, at], solid_capstyle="round", **bar)
            dot: dict[str, Any] = {"color": colours[key], "marker": markers[key], "markersize": 6}
            face = "none" if pd.isna(low) else colours[key]
            ax.plot([row[x]], [at], markerfacecolor=face, linestyle="none", **dot)
            if direct:
                right = row[x] if pd.isna(high) else max(row[x], high)
                beside: dict[str, Any] = {"textcoords": "offset points", "va": "center"}
                ax.annotate(FORMS[form](row[x]), (right, at), (6, 0), **beside)
        if log:
            ax.set_xscale("log")
        ax.set_yticks(range(len(names) - 1, -1, -1), [label(one) for one in names])
        ax.set_ylim(-0.6, len(names) - 0.4)
        if direct:
            for at, name in enumerate(reversed(names)):
                ax.annotate(
                    label(name), (0.005, at + 0.32), xycoords=("axes fraction", "data"), va="center"
                )
            ax.tick_params(axis="y", labelleft=False, length=0)
        side(ax, form, xlabel, line_at)

    key = key_lines(colours, markers) if hue not in (None, y) else []
    tall = (0.62, 0.42 if direct else 0.24)
    return drawn(
        rows, draw, [panel, y, hue, x], title, caption, panel, tall, 2, key, names=y, **words
    )


def lines(
    rows: pd.DataFrame,
    x: str,
    y: str,
    title: str,
    caption: str,
    hue: str = "placement",
    panel: str | None = None,
    form: str = "times",
    xlabel: str = "",
    ylabel: str = "",
    ideal: str | None = None,
    log: str = "x",
    at: Mapping[str, float] | None = None,
    xform: str | None = None,
    **words: str,
) -> Picture:
    """A line a hue over counts (or, with "x" not in `log`, any number), with the interval of each
    point; ValueError: over seven in a panel.
    ideal: "x" draws y = x as a thin line (perfect scaling). log: which axes are logarithmic: "x",
        "y", "xy" or "". at: name -> height of a horizontal line with that name (a limit). xform:
        how the axis writes x where it is no count ("bytes"), at five to seven of its values.
    """
    colours, markers = hues(rows, hue)

    def draw(ax: Axes, group: pd.DataFrame) -> None:
        series = list(group.groupby(hue, sort=False, observed=True))
        if len(series) > 7:
            raise ValueError(
                f"{len(series)} lines in one panel: at most 7 can be told apart; choose fewer rows"
                " or use panels"
            )
        for key, own in ((str(key), own.sort_values(x)) for key, own in series):
            looks: dict[str, Any] = {"color": colours[key], "marker": markers[key]}
            sns.lineplot(data=own, x=x, y=y, linestyle="-", errorbar=None, ax=ax, **looks)
            if f"{y}_low" in own:
                at_x, low, high = own[x].astype(float), own[f"{y}_low"], own[f"{y}_high"]
                ax.fill_between(at_x, low, high, color=colours[key], alpha=0.15, linewidth=0)
        if ideal == "x":
            # between its ends too: through a logarithmic axis y = x is no straight line
            perfect = np.linspace(group[x].min(), group[x].max(), 200)
            ax.plot(perfect, perfect, **DASHED | {"linewidth": 0.8})
        for text, height in (at or {}).items():
            ax.axhline(height, **DASHED)
            above: dict[str, Any] = {"textcoords": "offset points", "va": "bottom"}
            ax.annotate(text, (0.02, height), (0, 2), ("axes fraction", "data"), **above)
        known = sorted(group[x].unique())
        if xform:
            counts(ax, known[:: -(-len(known) // 7)], FORMS[xform])
        elif "x" in log:
            counts(ax, known) if len(known) <= 8 else ax.set_xscale("log")
        if "y" in log:
            ax.set_yscale("log")
        axis(ax, "y", form, ylabel)
        ax.set_xlabel(xlabel or x.replace("_", " "))

    key = key_lines(colours, markers)
    return drawn(rows, draw, [panel, hue, x, y], title, caption, panel, (2.9, 0), 3, key, **words)


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
    **words: str,
) -> Picture:
    """Horizontal bars with intervals, grouped by hue, with names (column y) down the side: for
    amounts that start at nought.
    """
    colours, _ = hues(rows, hue or y)
    palette = {**colours, **{label(value): colour for value, colour in colours.items()}}

    def draw(ax: Axes, group: pd.DataFrame) -> None:
        shown = group.assign(
            **{y: group[y].map(lambda one: label(str(one))), "_hue": group[hue or y].astype(str)}
        )
        plain: dict[str, Any] = {"errorbar": None, "legend": False, "saturation": 1}
        sns.barplot(data=shown, x=x, y=y, hue="_hue", palette=palette, ax=ax, **plain)
        if f"{x}_low" in group and group[f"{x}_low"].notna().any() and not hue:
            span = [group[x] - group[f"{x}_low"], group[f"{x}_high"] - group[x]]
            bars_of = np.nan_to_num(np.array(span, dtype=float))
            thin: dict[str, Any] = {"fmt": "none", "ecolor": INK, "elinewidth": 1}
            ax.errorbar(group[x], range(len(group)), xerr=bars_of, **thin)
        ax.set_ylabel("")
        side(ax, form, xlabel)

    key = key_lines(colours, {}) if hue else []
    return drawn(
        rows, draw, [panel, y, hue, x], title, caption, panel, (0.75, 0.2), 2, key, names=y, **words
    )


def timeline(
    rows: pd.DataFrame, y: str, title: str, caption: str, panel: str | None = None, **words: str
) -> Picture:
    """One step a row as a bar in parts (columns of seconds, of `STEP`), all on one axis of
    milliseconds.
    """
    parts: dict[str, Any] = {
        column: {"label": text, "facecolor": colour, "hatch": hatch, "edgecolor": "white"}
        for column, (text, colour, hatch) in STEP.items()
        if column in rows and rows[column].gt(0).any()
    }

    def draw(ax: Axes, group: pd.DataFrame) -> None:
        left = np.zeros(len(group))
        for column, looks in parts.items():
            width = 1e3 * group[column].fillna(0).to_numpy(dtype=float)
            ax.barh(range(len(group)), width, left=left, linewidth=0.4, height=0.66, **looks)
            left += width
        ax.set_yticks(range(len(group)), [label(str(one)) for one in group[y]])
        ax.invert_yaxis()
        side(ax, None, "milliseconds of one step")

    key = [Patch(**looks) for looks in parts.values()]
    return drawn(
        rows, draw, [panel, y, *parts], title, caption, panel, (0.75, 0.3), 1, key, names=y, **words
    )
