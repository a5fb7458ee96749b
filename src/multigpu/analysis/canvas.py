"""What the plots of pages share: a picture with its panels, colours and markers by name, axes that write figures, a legend below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from multigpu.analysis.estimate import FORMS
from multigpu.analysis.picture import Picture, head_height
from multigpu.analysis.points import Missing
from multigpu.analysis.style import MARKERS, OTHERS, in_order, label, look

WIDTH_IN = 6.4
"""Of every figure: at a telephone's width its letters are still read, since narrower drawings scroll in their own box."""


def panel_grid(rows: pd.DataFrame, panel: str | None) -> list[tuple[str, pd.DataFrame]]:
    """(title, rows) of each panel, in the rows' order.

    Raises:
        Missing: there is no row.
    """
    if rows.empty:
        raise Missing("no row to draw")
    if panel is None:
        return [("", rows)]
    return [(str(name), group) for name, group in rows.groupby(panel, sort=False, observed=True)]


def canvas(
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


def hues(rows: pd.DataFrame, hue: str | None) -> tuple[list[str], dict[str, str], dict[str, Any]]:
    """(values in order, colour by value, marker by value)."""
    if hue is None:
        return [], {}, {}
    values = [str(value) for value in rows[hue].dropna().unique()]
    if hue in ("placement", "base_placement"):
        values = in_order(values)
        return values, {v: look(v).colour for v in values}, {v: look(v).marker for v in values}
    colours = [OTHERS[index % len(OTHERS)] for index in range(len(values))]
    return values, dict(zip(values, colours, strict=True)), {v: MARKERS[i % len(MARKERS)] for i, v in enumerate(values)}


def axis(ax: Axes, axis: str, form: str | None, name: str) -> None:
    """Name an axis; its figures are written in a form of `FORMS`."""
    getattr(ax, f"set_{axis}label")(name)
    if form:
        getattr(ax, f"{axis}axis").set_major_formatter(FuncFormatter(lambda value, _: FORMS[form](value) if value else "0"))
        getattr(ax, f"{axis}axis").set_minor_formatter(NullFormatter())


def counts(ax: Axes, values: Sequence[float], write: Callable[[float], str] = "{:,.0f}".format) -> None:
    """Ticks at the values themselves, on a logarithmic axis: 1, 2, 4, 8."""
    ax.set_xscale("log", base=2)
    ax.set_xticks(sorted(set(values)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    ax.xaxis.set_minor_formatter(NullFormatter())


def said(picture: Picture, data: pd.DataFrame, caption: str, alt: str, name: str, link: str) -> Picture:
    """The picture with its words, its data, its file's name and its link."""
    picture.caption, picture.alt, picture.data = caption, alt or picture.finding, data
    picture.name, picture.link = name, link
    return picture


def shown_columns(rows: pd.DataFrame, names: Sequence[str | None]) -> pd.DataFrame:
    """What stands behind a drawing: these columns with their bounds, how often each row was measured, and its Records."""
    wanted = [f"{name}{end}" for name in names if name for end in ("", "_low", "_high")]
    return rows[[name for name in dict.fromkeys([*wanted, "n", "launches", "machine", "keys", "base_keys"]) if name in rows]]


def legend(picture: Picture, values: Sequence[str], colours: Mapping[str, str], markers: Mapping[str, Any]) -> None:
    """A legend of colours and markers, below."""
    handles = [mpl.lines.Line2D([], [], color=colours[v], marker=markers.get(v, ""), label=label(v), linewidth=1.4) for v in values]
    below(picture, handles)


def below(picture: Picture, handles: Sequence[Any]) -> None:
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
