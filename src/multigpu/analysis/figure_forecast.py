"""The forecast: efficiency against devices to 1,024 with its band, and how far the held-out points lay from what was said of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from multigpu.analysis.forecast_findings import TRUSTED, fan_finding, test_finding, tested, trusted
from multigpu.analysis.forecast_lines import Line
from multigpu.analysis.layout import grid_of_axes, label_lines, margin_for, name_panel, rows_from_top
from multigpu.analysis.metrics import job_of
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, FRAMEWORK_LINES, INK, MAX_LINES, RC, look
from multigpu.analysis.wording import describe, device_words, execution_text, field_text, joined, missing, percent_text, telling

WIDTH, HEIGHT = 3.0, 2.3
STRIP_WIDTH, STRIP_ROW, DOT = 6.2, 0.85, 0.062
"""Inches of the test's one panel, of each of its rows, and of a mark in it."""
MISSED, CAPTURED = (0, (1.2, 1.6)), (0, (7, 1.5, 1.5, 1.5))
MOST_SHOWN = 1.35
"""Efficiency above which a measured point is drawn at the edge."""
TICKS = (1, 2, 4, 8, 16, 64, 256, 1024)
PARTS_COLUMNS = ("computation", "noise", "links_inside", "links_between", "host")
NOTHING = "No forecast to draw: no job was measured on three numbers of devices, one of them 1, with launches repeated."


def jobs(lines: Iterable[Line]) -> list[list[Line]]:
    """The lines by job (`metrics.JOB`: forms of execution and frameworks share one), in the order of the page, placements in theirs."""
    found: dict[tuple[object, ...], list[Line]] = {}
    for line in lines:
        found.setdefault(job_of(line.first), []).append(line)
    return [sorted(group, key=lambda line: look(line.placement).order) for group in found.values()]


def job_names(groups: Sequence[Sequence[Line]]) -> list[str]:
    """What tells each job from the others: its model, its batch, and what else differs."""
    table = pd.DataFrame([line.first for group in groups for line in group])
    fields = telling(table, ["batch_size", "input_label", "sequence_length", "precision", "optimizer"])
    names = [describe(group[0].first, fields[group[0].first["model"]]) for group in groups]
    return [name or describe(group[0].first, ["model", "batch_size"]) for name, group in zip(names, groups, strict=True)]


def drawn_jobs(lines: Sequence[Line]) -> list[list[Line]]:
    """The forecasts by job, where some held-out point was repeated often enough to be a headline; at most seven lines each.

    Lines of the table's "screening" tier are drawn beside them. Without such a job, every forecast is drawn; but none of a line that
    misses points it was fitted to by over `TRUSTED`: what it says beyond them is not worth a line.
    """
    found = jobs(line for line in lines if line.forecast is not None and line.forecast.misfit <= TRUSTED)
    firm = [group for group in found if any(line.rows["tier"].iloc[-1] == "headline" for line in group)]
    return [sorted(_seven(group), key=lambda line: look(line.placement).order) for group in firm or found]


def _seven(group: Sequence[Line]) -> list[Line]:
    """Those for which there is room: a process a device where there is one, each placement and form once, what was measured most first.

    One process for all devices ends with its node, and leaves nothing to see beyond it.
    """
    apart = [line for line in group if line.first["processes"] != "one"]
    often = sorted(apart or group, key=lambda line: -int(line.rows["n"].sum()))
    ways = [(line.placement, str(line.first["execution"])) for line in often]
    rank = {id(line): (ways[:index].count(ways[index]), index) for index, line in enumerate(often)}
    return sorted(often, key=lambda line: rank[id(line)])[:MAX_LINES]


def line_label(line: Line, group: Sequence[Line]) -> str:
    """The placement, with how it was carried out where that is not eager, and what else tells it from others of its job."""

    def of(row: pd.Series, *names: str) -> list[str]:
        return ["" if missing(row[name]) else str(row[name]) for name in names]

    first = line.first
    parts = [look(line.placement).label]
    parts += [] if first["execution"] == "eager" else [execution_text(first["execution"])]
    alike = [other.first for other in group if of(other.first, "placement", "execution") == of(first, "placement", "execution")]
    parts += ["one process"] if first["processes"] == "one" and len({str(other.first["processes"]) for other in group}) > 1 else []
    parts += ["loss in one piece"] if of(first, "cross_entropy") == ["fused"] and len({*of_all(alike, "cross_entropy")}) > 1 else []
    for name in ("recurrence", "embedding_gradients", "batch_norm"):
        parts += [field_text(first, name)] if not missing(first[name]) and len({*of_all(alike, name)}) > 1 else []
    parts += [str(first["framework"])] if len({str(other.first["framework"]) for other in group}) > 1 else []
    return ", ".join(parts)


def of_all(rows: Sequence[pd.Series], name: str) -> list[str]:
    """One field of each row as text."""
    return ["" if missing(row[name]) else str(row[name]) for row in rows]


def figure_fan(lines: Sequence[Line], assumed: str) -> Picture:
    """A panel a job, a line a placement: the forecast with its band, what was measured, and the held-out point as a mark of its own.

    assumed: the links between nodes in words, for the caption.
    """
    groups = drawn_jobs(lines)
    missing_own = sum(line.forecast is not None and line.forecast.misfit > TRUSTED for line in lines)
    if not groups:
        return message(f"No forecast to draw: every line misses points it was fitted to by over {TRUSTED:.0%}." if missing_own else NOTHING)
    with mpl.rc_context(RC):
        left_out = sum(line.forecast is not None for line in lines) - sum(map(len, groups))
        names = job_names(groups)
        longest = max(len(line_label(line, group)) for group in groups for line in group)
        labels = max(0.95, 0.066 * longest + 0.15)  # tighter than `margin_for`, so that two panels fit a row
        picture, axes = grid_of_axes(len(groups), fan_finding(lines), WIDTH, HEIGHT, 2, labels, names=names, legend=True)
        highest = max(float(line.rows["efficiency"].max()) for group in groups for line in group)
        top = 100 * max(1.05, min(MOST_SHOWN, 1.03 * highest))
        for index, (ax, name, group) in enumerate(zip(axes, names, groups, strict=True)):
            _fan_panel(ax, name, group, top)
            if index % 2 == 0:
                ax.set_ylabel("efficiency (%)")
        picture.legend_line(
            [
                Line2D([], [], color=INK, linewidth=1.6, label="forecast, 95% band"),
                Line2D([], [], color=INK, linewidth=1.6, linestyle=CAPTURED, label="captured"),
                Line2D([], [], color=INK, linewidth=1.1, linestyle=MISSED, label=f"test missed by over {TRUSTED:.0%}, no band"),
                Line2D([], [], color=INK, marker="o", markersize=4, linestyle="", label="measured"),
                Line2D([], [], color=INK, marker="D", markersize=7, markerfacecolor="none", linestyle="", label="held out"),
            ]
        )
    first = groups[0][0].first
    fused = {line_label(line, group) for group in groups for line in group if of_all([line.first], "cross_entropy") == ["fused"]}
    picture.caption = (
        "Efficiency: step of the same placement on one over that on N, weak scaling. Lines: fitted to all counts measured; what the model "
        "misses at them is part of the band. Diamonds: the largest count measured, which a fit on the smaller ones had to predict (below). "
        f"{assumed} Intervals 95%; measured points without one were measured once (screening). {first['machine']}."
        + (f" With the loss in one piece: {joined(sorted(fused))} of NMT." if fused else "")
        + (f" {left_out} further forecasts stand in the tables alone" if left_out else "")
        + (f", {missing_own} of them since they miss points they were fitted to by over {TRUSTED:.0%}" if missing_own else "")
        + ("." if left_out else "")
    )
    picture.data = fan_data(line for group in groups for line in group)
    ends = [(line, len(line.forecast.devices) - 1) for group in groups for line in group if line.forecast]
    picture.alt = "Lines of efficiency against the number of devices. " + "; ".join(
        f"{line.panel}, {look(line.placement).label} on {line.forecast.devices[at]:,}: {percent_text(float(line.forecast.efficiency[at]))}"
        for line, at in ends
        if line.forecast
    )
    return picture


def _fan_panel(ax: Axes, name: str, group: Sequence[Line], top: float) -> None:
    name_panel(ax, name)
    ends = []
    most = max(line.forecast.devices[-1] for line in group if line.forecast)
    for line in group:
        found, style = line.forecast, look(line.placement)
        if found is None:
            continue
        x, y = np.array(found.devices), 100 * found.efficiency
        low, high = (100 * bound for bound in found.band())
        sure = trusted(line)
        captured = "captured" in str(line.first["execution"])
        dash = MISSED if not sure else CAPTURED if captured else FRAMEWORK_LINES.get(str(line.first["framework"]), "-")
        if sure:
            ax.fill_between(x, low, high, color=style.colour, alpha=0.13, linewidth=0)
        ax.plot(x, y, color=style.colour, linestyle=dash, linewidth=1.6 if sure else 1.1, clip_on=False)
        _measured(ax, line, style.colour, style.marker, top)
        if x[-1] == most:
            ends.append((float(x[-1]), float(y[-1]), line_label(line, group), style.colour))
        else:
            ax.annotate(line_label(line, group), (x[-1], y[-1]), (4, 0), textcoords="offset points", va="center", color=style.colour)
    ax.set_xscale("log", base=2)
    ax.set_xlim(1, most)
    ax.set_ylim(0, top)
    ax.axhline(100, color=INK, linewidth=0.8, alpha=0.5)
    node = max(line.links.node for line in group if line.links)
    if node < most:
        ax.axvline(node, color=INK, linewidth=0.9, linestyle=(0, (1, 2)), alpha=0.7)
        if top > 110:
            ax.text(1.12 * node, top, "network, assumed", va="top", fontsize=7.5)
    ax.xaxis.set_major_locator(FixedLocator([tick for tick in TICKS if tick <= most]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.set_xlabel(f"{device_words(str(group[0].first['device_type']))}, weak scaling")
    label_lines(ax, ends, HEIGHT)
    names = ax.texts[len(ax.texts) - len(ends) :]
    for (_, end, _, colour), text in zip(ends, names, strict=True):  # from where a line ends to where there was room for its name
        heights = [min(end / top, 1.0), float(text.get_position()[1])]
        ax.plot([1.0, 1.028], heights, transform=ax.transAxes, color=colour, linewidth=0.6, clip_on=False)


def _measured(ax: Axes, line: Line, colour: str, marker: str, top: float) -> None:
    """Measured efficiencies, the held-out one as an open diamond with its interval; what lies above the axis is cut off there."""
    for index, (_, row) in enumerate(line.rows.iterrows()):
        last, value = index == len(line.rows) - 1, min(100 * row["efficiency"], top)
        if last and not missing(row["efficiency_low"]):
            ax.vlines(row["devices"], 100 * row["efficiency_low"], min(100 * row["efficiency_high"], top), color=colour, linewidth=1.2)
        shape, size = ("D", 7.0) if last else (marker, 3.5)
        fill = "none" if last else colour
        ax.plot(row["devices"], value, marker=shape, color=colour, markersize=size, markerfacecolor=fill, clip_on=False, zorder=4)


def fan_data(lines: Iterable[Line]) -> pd.DataFrame:
    """A row a line and count: the forecast efficiency and step with bounds, its parts (s), and what was measured there."""
    rows = []
    for line in lines:
        found = line.forecast
        if found is None:
            continue
        low, high = found.band()
        measured = line.rows.set_index("devices")
        for at, devices in enumerate(found.devices):
            known = measured.loc[devices] if devices in measured.index else None
            rows.append(
                {name: line.first[name] for name in ("machine", "model", "batch_size", "precision", "execution", "placement", "framework")}
                | {"panel": line.panel, "devices": devices, "efficiency": found.efficiency[at]}
                | {"efficiency_low": low[at], "efficiency_high": high[at], "step_s": found.step_s[at]}
                | {f"{name}_s": found.parts_s[part, at] for part, name in enumerate(PARTS_COLUMNS)}
                | {"measured_efficiency": float("nan") if known is None else known["efficiency"]}
                | {"held_out": bool(known is not None and devices == line.rows["devices"].max())}
            )
    return pd.DataFrame(rows)


def beside(values: Sequence[float], near: float, step: float) -> list[float]:
    """How far from the middle of its row each mark stands, so that marks closer than `near` do not cover each other: 0, step, -step, ..."""
    places: list[float] = []
    for index, value in enumerate(values):
        taken = {round(places[other], 9) for other in range(index) if abs(values[other] - value) < near}
        rank = 0
        while round(place := step * ((rank + 1) // 2) * (1 if rank % 2 else -1), 9) in taken:
            rank += 1
        places.append(place)
    return places


def figure_test(lines: Sequence[Line]) -> Picture:
    """A mark a held-out point, in rows by form of execution: predicted against measured step in percent, inside its band or not."""
    order = tested(lines)
    if not order:
        return message("Nothing was held out: no job was measured on three numbers of devices, one of them 1, with launches repeated.")
    forms = list(dict.fromkeys(str(line.first["execution"]) for line in order))
    worst = max(abs(line.held_out.error) for line in order if line.held_out)
    reach = 100 * max(0.1, min(worst, 1.0)) * 1.1
    names = {form: f"{execution_text(form)}, {sum(str(line.first['execution']) == form for line in order)}" for form in forms}
    with mpl.rc_context(RC):
        left = margin_for(names.values(), 1.0)
        picture, (ax,) = grid_of_axes(1, test_finding(lines), STRIP_WIDTH, STRIP_ROW * len(forms), 1, left=left, legend=True)
        ax.set_xscale("symlog", linthresh=1, linscale=0.6)
        ax.set_xlim(-reach, reach)
        rows_from_top(ax, len(forms), len(forms))
        across = ax.transData + ax.transAxes.inverted()
        for place, form in enumerate(reversed(forms)):
            held = [line.held_out for line in order if line.held_out and str(line.first["execution"]) == form]
            held.sort(key=lambda one: (bool(one.inside), abs(one.error)))  # what lies outside stands in the middle of its row
            x = [float(np.clip(100 * one.error, -reach, reach)) for one in held]
            at = [STRIP_WIDTH * float(across.transform((value, 0))[0]) for value in x]
            y = [place + high for high in beside(at, DOT, DOT / STRIP_ROW)]
            for inside, marker, size, colour in ((True, "o", 4, CEILING), (False, "X", 6.5, INK)):
                own = [index for index, one in enumerate(held) if bool(one.inside) == inside]
                picked = [x[index] for index in own], [y[index] for index in own]
                ax.plot(*picked, marker=marker, linestyle="", color=colour, markersize=size, clip_on=False, zorder=4 if inside else 5)
        ax.set_yticks(range(len(forms)), [names[form] for form in reversed(forms)])
        ax.grid(axis="y", visible=False)
        ax.axvline(0, color=INK, linewidth=1.0)
        ax.xaxis.set_major_locator(FixedLocator([tick for tick in (-100, -10, -1, 0, 1, 10, 100) if abs(tick) <= reach]))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+.0f}" if value else "0"))
        ax.set_xlabel("predicted step against measured (%)")
        picture.legend_line(
            [
                Line2D([], [], color=CEILING, marker="o", markersize=4, linestyle="", label="measurement inside the 95% band"),
                Line2D([], [], color=INK, marker="X", markersize=6.5, linestyle="", label="outside"),
            ]
        )
    counts = sorted({line.held_out.devices for line in order if line.held_out})
    words = device_words(str(order[0].first["device_type"]))
    picture.caption = (
        f"The step on {joined([str(count) for count in counts])} {words}, predicted from smaller counts alone: a mark a line, by form of "
        "execution with how many there are. Linear between -1 and 1, logarithmic beyond. Weak scaling. "
        f"{', '.join(dict.fromkeys(str(line.first['machine']) for line in order))}."
    )
    picture.data = test_data(order)
    outside = [line for line in order if line.held_out and not line.held_out.inside]
    picture.alt = "Predicted against measured steps, marks by form of execution. Outside their band: " + (
        "; ".join(f"{line.panel}, {look(line.placement).label}: {100 * line.held_out.error:+.1f}%" for line in outside if line.held_out)
        or "none"
    )
    return picture


def test_data(lines: Sequence[Line]) -> pd.DataFrame:
    """A row a held-out point: predicted with bounds, measured (s), the error and whether it lies inside."""
    rows = []
    for line in lines:
        held = line.held_out
        if held is not None:
            rows.append(
                {name: line.first[name] for name in ("machine", "model", "batch_size", "precision", "execution", "placement", "framework")}
                | {"panel": line.panel, "devices": held.devices, "fitted_on": " ".join(map(str, held.fitted))}
                | {"predicted_s": held.predicted_s, "low_s": held.low_s, "high_s": held.high_s, "measured_s": held.measured_s}
                | {"error": held.error, "inside": held.inside, "spread_of": line.spread}
            )
    return pd.DataFrame(rows)
