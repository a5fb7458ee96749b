"""Draw what plots share: colours by name, axes and what they write, a key below."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from multigpu.analysis.estimate import FORMS
from multigpu.analysis.picture import RC
from multigpu.analysis.style import INK, MARKERS, OTHERS, in_order, label, look

DASHED: Any = {"color": INK, "linewidth": 0.9, "linestyle": (0, (3, 2))}


def hues(rows: pd.DataFrame, hue: str) -> tuple[dict[str, str], dict[str, Any]]:
    """(colour by value, marker by value), values in order."""
    values = [str(value) for value in rows[hue].dropna().unique()]
    if hue in ("placement", "base_placement"):
        values = in_order(values)
        return {v: look(v).colour for v in values}, {v: look(v).marker for v in values}
    return {v: OTHERS[i % len(OTHERS)] for i, v in enumerate(values)}, {
        v: MARKERS[i % len(MARKERS)] for i, v in enumerate(values)
    }


def axis(ax: Axes, which: str, form: str | None, name: str) -> None:
    """Name an axis and write its figures in a form, shares and ratios with as many decimals as tell
    them apart.
    """
    getattr(ax, f"set_{which}label")(name)
    if form:
        short = {"percent": lambda value: f"{100 * value:.6g}%", "times": "{:.6g}".format}
        write = short.get(form, FORMS[form])
        getattr(ax, f"{which}axis").set_major_formatter(
            FuncFormatter(lambda value, _: write(value) if value else "0")
        )
        getattr(ax, f"{which}axis").set_minor_formatter(NullFormatter())


def side(ax: Axes, form: str | None, xlabel: str, line_at: float | None = None) -> None:
    """An axis of names down the side: its figures below, and a vertical line."""
    if line_at is not None:
        ax.axvline(line_at, **DASHED)
    axis(ax, "x", form, xlabel)
    ax.grid(axis="y", visible=False)


def counts(
    ax: Axes, values: Sequence[float], write: Callable[[float], str] = "{:,.0f}".format
) -> None:
    """Ticks at the values themselves, on a logarithmic axis: 1, 2, 4, 8; one that would touch the
    one before is left out.
    """
    apart = (values[-1] / values[0]) ** 0.06
    ax.set_xscale("log", base=2)
    ax.set_xticks(
        [
            value
            for before, value in zip([0.0, *values], values, strict=False)
            if value > before * apart
        ]
    )
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    ax.xaxis.set_minor_formatter(NullFormatter())


@mpl.rc_context(RC)
def key_lines(colours: Mapping[str, str], markers: Mapping[str, Any]) -> list[Any]:
    """Of a key: a line a value, in its colour and with its marker."""
    return [
        Line2D([], [], color=colours[v], marker=markers.get(v, ""), label=label(v), linewidth=1.4)
        for v in colours
    ]
