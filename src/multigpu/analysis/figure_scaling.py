"""Efficiency or speedup against devices: small multiples by job, a line a placement, the independent replicas as the ceiling."""

from __future__ import annotations

from typing import Literal

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes

from multigpu.analysis.findings import line_name, panels, scaling_finding, with_several_placements
from multigpu.analysis.layout import common, gaps, grid_of_axes, label_early, label_lines, left_out, margin_for, name_panel
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, FRAMEWORK_LINES, INK, MAX_LINES, RC, look
from multigpu.analysis.wording import device_word, device_words

WIDTH, HEIGHT, LABELS = 2.55, 2.05, 0.95
BESIDE = ("independent", "ddp")
BASELINES = {"own": "the same placement on one", "best": "the fastest way on one"}


def figure_scaling(
    frame: pd.DataFrame,
    value: Literal["efficiency", "speedup"] = "efficiency",
    baseline: Literal["own", "best"] = "own",
    columns: int = 2,
    compared: bool = False,
) -> Picture:
    """How each placement scales: a panel a job, a line a placement and framework, at most seven lines a panel.

    Args:
        frame: of `load_frame`.
        value: efficiency (share of perfect scaling) or speedup (ratio).
        baseline: "own" divides by the same placement on one device, as the documents do; "best" by the fastest single device.
        compared: draw only the jobs with two placements or more beside the ceiling, where there are any.
    """
    column = value + ("_best" if baseline == "best" else "")
    table = scaling_table(frame)
    drawn = table[table[column].notna()]
    drawn = pd.concat([several_devices(panel) for _, panel in panels(drawn)]) if len(drawn) else drawn
    if drawn.empty:
        return message("No scaling to draw: no Record on several devices has its baseline on one device.")
    every = [(name, panel) for name, panel in panels(drawn) if panel["devices"].max() > 1]
    shown = (with_several_placements(every) if compared else []) or every
    drawn = drawn[drawn.index.isin([index for _, panel in shown for index in panel.index])]
    with mpl.rc_context(RC):
        finding = scaling_finding(drawn, column if value == "efficiency" else column.replace("speedup", "efficiency"))
        labels = margin_for((line_name(row, panel) for _, panel in shown for _, row in panel.iterrows()), LABELS)
        picture, axes = grid_of_axes(len(shown), finding, WIDTH, HEIGHT, columns, labels, names=[name for name, _ in shown])
        # a very wide interval is cut off rather than flattening every line
        top = max(float(drawn[column].max()), float(min(drawn[f"{column}_high"].max(), 1.15 * drawn[column].max())))
        no_room: list[str] = []
        for index, (ax, (name, panel)) in enumerate(zip(axes, shown, strict=True)):
            if lines := _panel(ax, panel, column, name, top):
                no_room.append(f"{', '.join(lines)} ({name})")
            if index % columns == 0:
                ax.set_ylabel("efficiency (%)" if value == "efficiency" else "speedup (times)")
    first = drawn.iloc[0]
    word = device_word(first["device_type"])
    what = "Efficiency: units/s on N over N times that of" if value == "efficiency" else "Speedup: units/s on N over that of"
    picture.caption = (
        f"{what} {BASELINES[baseline]} {word}. Grey: independent replicas, the ceiling on this host. {common(drawn)}"
        + gaps(table)
        + left_out(every, shown)
        + (f" No room for: {'; '.join(no_room)}." if no_room else "")
    )
    picture.data = _data(drawn, column)
    picture.alt = _alt(shown, column, value)
    return picture


def several_devices(panel: pd.DataFrame) -> pd.DataFrame:
    """The points of the lines that leave one device: those of a line that does not say nothing of scaling."""
    return panel[panel.groupby(["placement", "framework"])["devices"].transform("max") > 1]


def _panel(ax: Axes, panel: pd.DataFrame, column: str, name: str, top: float) -> list[str]:
    """Draw one panel; returns the lines for which there was no room."""
    factor = 100 if column.startswith("efficiency") else 1
    name_panel(ax, name)
    groups = [(str(key[0]), str(key[1]), g.sort_values("devices")) for key, g in panel.groupby(["placement", "framework"], sort=False)]
    # where there is room for some only: the ceiling and plain replicas, beside which all others are read, then those that were repeated,
    # and of the others the slowest, which say most
    groups.sort(key=lambda item: (item[0] not in BESIDE, once := item[2]["n"].max() == 1, item[2][column].iloc[-1] if once else 0.0))
    groups = sorted(groups[:MAX_LINES], key=lambda item: (look(item[0]).order, item[:2])) + groups[MAX_LINES:]
    ends: list[tuple[float, float, str, str]] = []
    early: list[tuple[float, float, str, str]] = []
    most = int(panel["devices"].max())
    for placement, framework, group in groups[:MAX_LINES]:
        style, ceiling = look(placement), placement == "independent"
        x, y = group["devices"].to_numpy(float), factor * group[column].to_numpy(float)
        low, high = (factor * group[f"{column}_{end}"].to_numpy(float) for end in ("low", "high"))
        line = {"color": style.colour, "linestyle": FRAMEWORK_LINES.get(framework, "-"), "clip_on": False}
        if ceiling:
            ax.fill_between(x, low, high, color=CEILING, alpha=0.3, linewidth=0)
        else:
            ax.errorbar(x, y, yerr=[y - low, high - y], fmt="none", ecolor=style.colour, elinewidth=1.3, capsize=2.5)
        ax.plot(x, y, marker=style.marker, linewidth=1.1 if ceiling else 1.6, markersize=4 if ceiling else 5.5, zorder=3, **line)
        label = line_name(group.iloc[0], panel)
        if x[-1] == most:
            ends.append((x[-1], y[-1], label, style.colour))
        else:  # the line ends early: its name stays with it
            early.append((x[-1], y[-1], label, style.colour))
    ax.set_xlim(0, most * 1.02)
    ax.set_xticks(sorted(panel["devices"].unique()))
    ax.set_xlabel(f"{device_words(panel['device_type'].iloc[0])}, {panel['scaling'].iloc[0]} scaling")
    if factor == 100:
        ax.set_ylim(0, max(105.0, 103 * top))
        ax.axhline(100, color=INK, linewidth=0.8, alpha=0.5)
    else:
        ax.set_ylim(0, max(top, float(most)) * 1.04)
        ax.plot([0, most], [0, most], color=INK, linewidth=0.8, alpha=0.5)
    below = label_lines(ax, ends, HEIGHT)
    shown = pd.concat([group for _, _, group in groups[:MAX_LINES]])
    for at in sorted({end[0] for end in early}):
        floor = factor * float(shown.loc[shown["devices"] >= at, column].min())
        label_early(ax, [end for end in early if end[0] == at], floor, below, HEIGHT)
    return [line_name(group.iloc[0], panel) for _, _, group in groups[MAX_LINES:]]


def _data(drawn: pd.DataFrame, column: str) -> pd.DataFrame:
    fields = ["machine", "model", "batch_size", "scaling", "sequence_length", "input_label", "precision", "execution", "layout"]
    return drawn[[*fields, "placement", "framework", "devices", "n", "launches", "tier", column, f"{column}_low", f"{column}_high", "keys"]]


def _alt(shown: list[tuple[str, pd.DataFrame]], column: str, value: str) -> str:
    parts = []
    for name, panel in shown:
        most = panel[panel["devices"] == panel["devices"].max()]
        form = (lambda x: f"{100 * x:.0f}%") if value == "efficiency" else (lambda x: f"{x:.2f}")
        values = ", ".join(
            f"{line_name(row, panel)} {form(row[column])}" for _, row in most.sort_values(column, ascending=False).iterrows()
        )
        parts.append(f"{name}, on {most['devices'].iloc[0]}: {values}")
    return f"Lines of {value} against the number of devices. " + "; ".join(parts) + "."
