"""Absolute throughput as sorted dots with intervals, on one device and on most, with the document's figure as a hollow mark."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes

from multigpu.analysis.documents import DOCUMENT_GPU, document_rows, experiment_of
from multigpu.analysis.findings import line_name, panels, throughput_finding, with_several_placements
from multigpu.analysis.layout import common, gaps, grid_of_axes, left_out, margin_for, name_panel, rows_from_top
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import INK, RC, look
from multigpu.analysis.wording import UNIT_NAMES, devices_text, rate_text

WIDTH, ROW = 2.55, 0.27
LOG_FROM = 20
"""A panel whose largest value is this many times its smallest gets a logarithmic axis: dots are places, not lengths."""


def figure_throughput(frame: pd.DataFrame, published: pd.DataFrame | None = None, columns: int = 2, compared: bool = False) -> Picture:
    """What each placement trains: a panel a job, a row a placement and framework, fastest on top.

    Args:
        frame: of `load_frame`.
        published: of `documents.published_experiments`; where a row rebuilds an experiment of document 000, its figures on one
            and on most GPUs are drawn as hollow marks.
        compared: draw only the jobs with two placements or more beside the ceiling, where there are any.
    """
    table = scaling_table(frame)
    drawn = table[table["n"] > 0]
    if drawn.empty:
        return message("No throughput to draw: no Record with status ok.")
    every = list(panels(drawn))
    shown = (with_several_placements(every) if compared else []) or every
    drawn = drawn[drawn.index.isin([index for _, panel in shown for index in panel.index])]
    data: list[dict[str, object]] = []
    with mpl.rc_context(RC):
        most_rows = max(panel.groupby(["placement", "framework"]).ngroups for _, panel in shown)
        finding = throughput_finding(drawn)
        left = margin_for(line_name(row, panel) for _, panel in shown for _, row in panel.iterrows())
        picture, axes = grid_of_axes(
            len(shown), finding, WIDTH, ROW * most_rows + 0.25, columns, row_gap=0.85, left=left, names=[n for n, _ in shown]
        )
        for ax, (name, panel) in zip(axes, shown, strict=True):
            data += _panel(ax, name, panel, published, most_rows)
    hollow = any(row["source"] != "Records" for row in data)
    fewest = {int(panel["devices"].min()) for _, panel in shown}
    small = devices_text(min(fewest), drawn["device_type"].iloc[0]) if len(fewest) == 1 else "the fewest measured"
    counts = f"Small marks: {small}; large: the most measured."
    picture.caption = f"Units/s of all devices. {counts} {common(drawn)}{gaps(table)}{left_out(every, shown)}"
    if hollow:
        picture.caption += f" Hollow: document 000's own figure ({DOCUMENT_GPU}, number of GPUs beside it), another machine and framework."
    picture.data = pd.DataFrame(data)
    picture.alt = "Dots of throughput, fastest first. " + "; ".join(_alt(name, panel) for name, panel in shown) + "."
    return picture


def _panel(ax: Axes, name: str, panel: pd.DataFrame, published: pd.DataFrame | None, most_rows: int) -> list[dict[str, object]]:
    name_panel(ax, name)
    fewest, most, unit = panel["devices"].min(), panel["devices"].max(), panel["unit"].iloc[0]
    lines = [group.sort_values("devices") for _, group in panel.groupby(["placement", "framework"], sort=False)]
    lines.sort(key=lambda group: (group["devices"].iloc[-1], group["rate"].iloc[-1]))  # the fastest on most devices last, on top
    data: list[dict[str, object]] = []
    values: list[float] = []
    for y, group in enumerate(lines):
        style = look(group["placement"].iloc[0])
        ends = group[group["devices"].isin([fewest, most])]
        for _, row in ends.iterrows():
            size = 7.0 if row["devices"] == most and most > fewest else 4.0
            ax.plot([row["rate"]], [y], marker=style.marker, markersize=size, color=style.colour, linestyle="none", zorder=3)
            if row["rate_low"] == row["rate_low"]:
                ax.plot([row["rate_low"], row["rate_high"]], [y, y], color=style.colour, linewidth=3, alpha=0.45, solid_capstyle="butt")
            data.append(_datum(name, row, row["devices"], row["rate"], row["rate_low"], row["rate_high"], int(row["n"]), "Records"))
            values.append(row["rate"])
        for _, theirs in _document_ends(group.iloc[-1], published, fewest).iterrows():
            ax.plot([theirs["words_per_s"]], [y], marker=style.marker, markersize=6, mfc="none", mec=style.colour, linestyle="none")
            ax.annotate(f"{theirs['gpus']:.0f}", (theirs["words_per_s"], y), (0, 6), textcoords="offset points", ha="center", fontsize=7)
            experiment = f"000, {theirs['experiment']}"
            data.append(_datum(name, group.iloc[-1], theirs["gpus"], theirs["words_per_s"], float("nan"), float("nan"), 1, experiment))
            values.append(theirs["words_per_s"])
    ax.set_yticks(range(len(lines)), [line_name(group.iloc[0], panel) for group in lines])
    for label, group in zip(ax.get_yticklabels(), lines, strict=True):
        label.set_color(look(group["placement"].iloc[0]).colour)
        label.set_fontweight("bold")
    ax.spines["left"].set_visible(False)
    rows_from_top(ax, len(lines), most_rows)
    log = max(values) > LOG_FROM * min(values)
    if log:
        ax.set_xscale("log")
        ax.set_xlim(min(values) / 1.6, max(values) * 1.6)
        ax.minorticks_off()
    else:
        ax.set_xlim(0, max(values) * 1.06)
        ax.axvline(0, color=INK, linewidth=0.8)
        ax.locator_params(axis="x", nbins=5)
    ax.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g} M" if x >= 1e6 else f"{x:,.0f}")
    ax.set_xlabel(f"{UNIT_NAMES[unit]}, {panel['scaling'].iloc[0]} scaling" + (" (log scale)" if log else ""))
    return data


def _document_ends(row: pd.Series, published: pd.DataFrame | None, fewest: int) -> pd.DataFrame:
    """The published rows on `fewest` and on most GPUs."""
    if published is None:
        return pd.DataFrame()
    rows = document_rows(row, published)
    return rows[rows["gpus"].isin([fewest, rows["gpus"].max()])]


def _datum(panel: str, row: pd.Series, devices: int, rate: float, low: float, high: float, n: int, source: str) -> dict[str, object]:
    own = {"panel": panel, "placement": row["placement"], "framework": row["framework"], "devices": int(devices)}
    numbers = {"units_per_s": rate, "units_per_s_low": low, "units_per_s_high": high, "unit": row["unit"], "n": n}
    return own | numbers | {"scaling": row["scaling"], "source": source, "rebuilds": experiment_of(row)}


def _alt(name: str, panel: pd.DataFrame) -> str:
    rows = panel[panel["devices"] == panel["devices"].max()].sort_values("rate", ascending=False)
    values = ", ".join(f"{line_name(row, panel)} {rate_text(row['rate'], unit=row['unit'])}" for _, row in rows.iterrows())
    return f"{name}, on {rows['devices'].iloc[0]}: {values}"
