"""Efficiency against bytes of gradients an operation, with the bounds that links and arithmetic set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, PercentFormatter
from matplotlib.transforms import Bbox

from multigpu.analysis.layout import LEFT, common, grid_of_axes, label_lines, name_panel
from multigpu.analysis.limits import ceilings
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.scales import (
    AXES,
    BATCH,
    bound_exposed,
    bound_hidden,
    exchange_ratio,
    family_name,
    job_names,
    once_a_job,
    short_name,
    sweep_rows,
)
from multigpu.analysis.scales_findings import PREFERRED, preference, preferred_line
from multigpu.analysis.style import CEILING, PALETTE, RC
from multigpu.analysis.wording import devices_text, execution_text, percent_text
from multigpu.workloads.cnn.family import CENTRE

WIDTH, HEIGHT = 2.9, 2.1
EXECUTIONS = {"eager": ("#d55e00", "^"), "captured": ("#0072b2", "o"), "compiled": ("#009e73", "s"), "compiled_captured": ("#cc79a7", "v")}


MOST = 1.12
"""Efficiency at the top of a panel whose points lie no higher."""


def _comparable(known: pd.DataFrame) -> pd.DataFrame:
    """Of each precision the devices on which several ratios were measured; where there are none, of each precision the most devices."""
    kinds = known.groupby(["precision", "devices"])["bytes_per_flop"].transform("nunique")
    several = known[kinds > 1]
    return several if len(several) else known[known["devices"] == known.groupby("precision")["devices"].transform("max")]


FAINT = 0.35
"""How strongly points launched kernel by kernel are drawn: their hosts scatter them, and the finding is of the others."""

SIDES = ((1, 0, "left"), (-1, 0, "right"), (0, 1, "center"), (0, -1, "center"), (1, 1, "left"), (1, -1, "left"), (-1, -1, "right"))
"""Where a name may stand beside its point, in the order in which places are tried: steps right and up, and how it is aligned."""


def _extremes(rows: pd.DataFrame) -> pd.DataFrame:
    """Of one form's points in a panel: fewest and most bytes an operation, least and most efficiency."""
    chosen = [rows[name].agg(which) for name in ("bytes_per_flop", "efficiency") for which in ("idxmin", "idxmax")]
    return rows.loc[list(dict.fromkeys(chosen))]


def _name_points(ax: Axes, rows: pd.DataFrame, colour: str, drawn: pd.DataFrame, taken: list[Bbox]) -> None:
    """Write these points' names beside them, where no other point and no name stands; one without such a place stays unnamed.

    drawn: all points of the panel. taken: where names stand; grows.
    """
    around = [Bbox.from_bounds(x - 3, y - 3, 6, 6) for x, y in ax.transData.transform(drawn[["at", "efficiency"]])]
    inside = ax.get_window_extent()
    for _, row in rows.iterrows():
        for across, up, side in SIDES:
            text = ax.annotate(
                short_name(row),
                (row["at"], row["efficiency"]),
                xytext=(6 * across, 9 * up),
                textcoords="offset points",
                ha=side,
                va="center",
                fontsize=7.5,
                color=colour,
                zorder=4,
                path_effects=[withStroke(linewidth=2, foreground="white")],
            )
            box = text.get_window_extent()
            if inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and not any(map(box.overlaps, [*taken, *around])):
                taken.append(box)
                break
            text.remove()


def figure_ratio(points: pd.DataFrame) -> Picture:
    """A panel a precision and number of devices: every model's efficiency over its bytes an operation, log scale, beside both bounds."""
    known = points[points["ratio"].notna()] if len(points) else points
    if known.empty:
        return message(
            "Nothing to draw: no model on several devices of a machine whose ceilings are known (`python -m multigpu ceilings`)."
        )
    known = once_a_job(_comparable(known))
    panels = list(known.groupby(["precision", "devices"], sort=True))
    with mpl.rc_context(RC):
        names = [f"{precision}, {devices_text(int(str(devices)), 'cuda')}" for (precision, devices), _ in panels]
        picture, axes = grid_of_axes(
            len(panels),
            _ratio_finding(known),
            WIDTH,
            HEIGHT,
            names=names,
            label_width=0.87,
            left=LEFT + 0.08,
            legend=True,
        )
        handles = {}
        for ax, name, ((precision, devices), rows) in zip(axes, names, panels, strict=True):
            name_panel(ax, name)
            limits = ceilings(rows["gpu"].iloc[0])
            x = np.geomspace(rows["bytes_per_flop"].min() / 3, max(rows["bytes_per_flop"].max() * 3, 1e-3), 120)
            ratios = [
                exchange_ratio(value, 1.0, int(str(devices)), limits[str(precision)].value, limits["device_link"].value) for value in x
            ]
            hidden, exposed = [bound_hidden(r) for r in ratios], [bound_exposed(r) for r in ratios]
            ax.plot(1e6 * x, hidden, color=CEILING, linewidth=1.2)
            ax.plot(1e6 * x, exposed, color=CEILING, linewidth=1.2, linestyle=(0, (4, 2)))
            rows = rows.assign(at=1e6 * rows["bytes_per_flop"])
            for execution, group in rows.groupby("execution", sort=True):
                colour, marker = EXECUTIONS.get(str(execution), (PALETTE[5], "P"))
                below: dict[str, Any] = {"alpha": FAINT, "markersize": 4, "zorder": 1.5} if execution == "eager" else {"zorder": 3}
                (handles[execution],) = ax.plot(
                    *(group["at"], group["efficiency"], marker),
                    color=colour,
                    label=execution_text(execution),
                    linestyle="none",
                    **below,
                )
            ax.set_xscale("log")
            ax.set_ylim(0, max(MOST, 1.05 * known["efficiency"].max()))
            ax.xaxis.set_major_locator(LogLocator(numticks=5))
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            ax.set_xlabel("bytes of gradients / MFLOP")
            taken: list[Bbox] = []
            for form in sorted(set(rows["execution"]), key=preference):
                _name_points(ax, _extremes(rows[rows["execution"] == form]), EXECUTIONS.get(form, (PALETTE[5], "P"))[0], rows, taken)
            ends = [(1e6 * x[-1], hidden[-1], "all hidden", CEILING), (1e6 * x[-1], exposed[-1], "all exposed", CEILING)]
            label_lines(ax, ends, HEIGHT)
        axes[0].set_ylabel("efficiency")
        picture.legend_line(list(handles.values()))
    picture.caption = (
        "Points: models under all-reduce during backward, weak scaling against the same placement on one device. Lines: the most that "
        "links allow a model that computes at the rate of large matrix products, its gradients summed beside computing (solid) or after it "
        "(dashed), both from measured ceilings. Models compute more slowly than that, so links take a smaller share of their steps and "
        "points may lie above the lines: each one's own two bounds stand in the table, and the intervals. A job is one point, of its most "
        "repeats. Named: of each form of execution the points with fewest and most bytes, and with least and most efficiency, where there "
        f"is room; a number behind a model: images a device. {common(known)}"
    )
    picture.data = known[
        [
            "machine",
            "model",
            "batch_size",
            "precision",
            "execution",
            "devices",
            "n",
            "bytes_per_flop",
            "ratio",
            "hidden",
            "exposed",
            "efficiency",
        ]
    ].reset_index(drop=True)
    picture.alt = "; ".join(
        f"{name}, {row['devices']} devices: {row['efficiency']:.0%}"
        for name, (_, row) in zip(job_names(known), known.iterrows(), strict=True)
    ).replace("\u00a0", " ")
    return picture


def _ratio_finding(known: pd.DataFrame) -> str | None:
    """What is kept at both ends of the ratio, and least of all, in the steps that wait least for the host."""
    line = preferred_line(known)
    if line is None:
        return None
    low, high, least = line.rows.iloc[0], line.rows.iloc[-1], line.rows["efficiency"].min()
    ends = " and ".join(f"{percent_text(row['efficiency'])} at {1e6 * row['bytes_per_flop']:,.0f}" for row in (low, high))
    between = "" if least >= min(low["efficiency"], high["efficiency"]) else f", and {percent_text(least)} at the least"
    once = ", both ends measured once" if low["n"] == high["n"] == 1 else ""
    return f"Efficiency is {ends} bytes of gradients a million operations{between} ({line.where}{once})"


def _family_finding(shown: Sequence[tuple[str, pd.DataFrame]]) -> str:
    """The number of a model with which efficiency varies most, of the form of execution that waits least for the host in all panels."""
    drawn = {str(name) for _, rows in shown for name in rows["execution"]}
    chosen = next((name for name in PREFERRED if name in drawn), min(drawn))
    lines = [
        (axis, line["efficiency"])
        for axis, rows in shown
        for _, line in rows[rows["execution"] == chosen].groupby(["execution", "devices"])
    ]
    axis, widest = max(lines, key=lambda item: item[1].max() - item[1].min())
    return (
        f"{execution_text(chosen)}, efficiency varies most with {AXES[axis].replace(' (%)', '')}: "
        f"from {percent_text(widest.min())} to {percent_text(widest.max())}"
    )


def _lines(rows: pd.DataFrame) -> pd.DataFrame:
    """Those rows whose form of execution was measured at two values or more, on so many devices."""
    return rows[rows.groupby(["execution", "devices"])["at"].transform("nunique") > 1]


def figure_family(points: pd.DataFrame) -> Picture:
    """Efficiency along each axis of the family, a line an execution and number of devices."""
    shown = [(axis, rows) for axis in AXES if len(rows := _lines(sweep_rows(points, axis)))] if len(points) else []
    if not shown:
        return message("The made-up family has no Record yet: python -m multigpu measure --grid family measures it on GPUs.")
    parts = []
    with mpl.rc_context(RC):
        names = [f"by {AXES[axis]}" for axis, _ in shown]
        picture, axes = grid_of_axes(len(shown), _family_finding(shown), WIDTH, HEIGHT, names=names, label_width=1.07, left=LEFT + 0.08)
        for number, (ax, name, (axis, rows)) in enumerate(zip(axes, names, shown, strict=True)):
            name_panel(ax, name)
            ends = []
            for (execution, devices), line in rows.groupby(["execution", "devices"], sort=True):
                colour, marker = EXECUTIONS.get(str(execution), (PALETTE[5], "P"))
                style = "-" if devices == rows["devices"].max() else (0, (1, 1)) if devices == 2 else (0, (4, 2))
                ax.plot(line["at"], line["efficiency"], color=colour, marker=marker, linestyle=style)
                ends.append(
                    (float(line["at"].iloc[-1]), float(line["efficiency"].iloc[-1]), f"{execution_text(execution)}, {devices}", colour)
                )
            if axis != "dense_percent":
                ax.set_xscale("log", base=2)
                ax.set_xticks(sorted(set(rows["at"])), [str(value) for value in sorted(set(rows["at"]))])
                ax.minorticks_off()
            ax.set_ylim(0, max(MOST, *(1.05 * drawn["efficiency"].max() for _, drawn in shown)))
            ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            ax.set_xlabel(AXES[axis])
            label_lines(ax, ends, HEIGHT)
            if number % 2 == 0:
                ax.set_ylabel("efficiency")
            parts.append(rows.assign(axis=axis)[["axis", "at", "model", "execution", "devices", "n", "efficiency", "bytes_per_flop"]])
    picture.data = pd.concat(parts, ignore_index=True)
    once = " Each was measured once (screening)." if picture.data["n"].eq(1).all() else ""
    picture.caption = (
        f"Members of the family at {BATCH} images a device, but where that is what changes; bf16, all-reduce during backward; the other "
        f"numbers stay at {family_name(CENTRE)}. Labels: execution and devices.{once} "
        f"{', '.join(dict.fromkeys(pd.concat([rows for _, rows in shown])['machine']))}."
    )
    picture.alt = "; ".join(
        f"{row.axis} {row['at']}, {execution_text(row.execution)}, {row.devices} devices: {row.efficiency:.0%}"
        for _, row in picture.data.iterrows()
    )
    return picture
