"""A ladder of speedups from 2018's way to today's: a panel a chain, a bar a change, on a log scale, where lengths are shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from multigpu.analysis.layout import grid_of_axes, label_lines, margin_for, name_panel
from multigpu.analysis.lost_speed import APART, CEILING, DOCUMENT, REST, START
from multigpu.analysis.lost_speed_page import GOAL, OF, measured, share_text
from multigpu.analysis.lost_speed_sweeps import SWEEPS
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING as GREY
from multigpu.analysis.style import INK, RC, look
from multigpu.analysis.wording import devices_text, missing, ratio_text

WIDTH, ROW = 3.7, 0.27
COLUMNS = (1.15, 1.29)
"""Where the two columns of figures end, in widths of a panel."""
LOOKS = {
    "protocol": ("protocol", "#aa3377", ""),
    "host": ("host", "#d55e00", ""),
    "links": ("links", "#0072b2", "///"),
    "work": ("work in a step", "#009e73", "..."),
    APART: ("not told apart", "#b07a00", "xx"),
}
"""Of each cause: label, colour, hatch."""
NOTHING = "No chain to draw: none of its ways was measured on one device and on several (grid causes)."


def figure_lost_speed(tables: Sequence[pd.DataFrame], device_type: str = "cuda") -> Picture:
    """The chains of `lost_speed.chain_table`, each over as many devices as it was measured on."""
    drawn = [table for table in tables if len(table) and table["speedup"].notna().any()]
    if not drawn:
        return message(NOTHING)
    names = [_name(table, device_type) for table in drawn]
    with mpl.rc_context(RC):
        left = margin_for([_way(row) for table in drawn for _, row in table.iterrows()], 2.0)
        counts = [int(table["way"].ne(REST).sum()) for table in drawn]
        finding, height = _finding(drawn, device_type), ROW * max(counts)
        picture, axes = grid_of_axes(len(drawn), finding, WIDTH, height, 1, 1.15, row_gap=0.8, left=left, legend=True, names=names)
        reached = pd.concat([(table["speedup"] / table["devices"]).dropna() for table in drawn])
        for ax, name, table in zip(axes, names, drawn, strict=True):
            name_panel(ax, name)
            _panel(ax, table, 0.9 * float(reached.min()), 1.04 * max(1.0, float(reached.max())))
        axes[-1].set_xlabel("of perfect scaling (log scale)")
        _shrink(picture, axes, counts)
        used = {str(cause) for table in drawn for cause in table.loc[table["share"].notna(), "cause"]}
        picture.legend_line(
            [Patch(facecolor=c, hatch=h, edgecolor=INK, linewidth=0.4, label=n) for key, (n, c, h) in LOOKS.items() if key in used]
        )
    picture.data = pd.concat(drawn, ignore_index=True)
    machines = [str(table["machine"].iloc[0]) for table in drawn if table["chain"].iloc[0] != DOCUMENT]
    picture.caption = (
        "Speedup over one device done the same way, as a part of the devices' number. On a log scale a bar is as long as its share of "
        "what the first way loses; where a share is negative, the change costs speedup and its bar ends at its left. Each way keeps what "
        f"those above it changed. Dashed: perfect scaling; dotted: {GOAL} of {OF} of it. Whiskers: 95% of a speedup; without, one side "
        "was measured once (screening)." + (f" {', '.join(dict.fromkeys(machines))}." if machines else "")
    )
    picture.alt = "Ladders of speedups. " + "; ".join(
        f"{name}: " + ", ".join(f"{_way(row)} {ratio_text(row['speedup'])}" for _, row in table[table["speedup"].notna()].iterrows())
        for name, table in zip(names, drawn, strict=True)
    )
    return picture


def _name(table: pd.DataFrame, device_type: str) -> str:
    chain, devices = str(table["chain"].iloc[0]), int(table["devices"].iloc[0])
    return (
        f"{chain}, {table['machine'].iloc[0]}"
        if chain == DOCUMENT
        else f"{chain}, {devices_text(devices, device_type)} of {table['machine'].iloc[0]}"
    )


def _way(row: pd.Series) -> str:
    return str(row["way"]) + (", as published" if row["published"] and "published" not in str(row["way"]) else "")


def _shrink(picture: Picture, axes: Sequence[Axes], rows: Sequence[int]) -> None:
    """Let every panel be as high as its own rows want; what stands above it stays, what stands below moves up."""
    width, full = picture.get_size_inches()
    boxes = [ax.get_position() for ax in axes]
    saved = [ROW * (max(rows) - count) for count in rows]
    left = full - sum(saved)
    for index, (ax, box) in enumerate(zip(axes, boxes, strict=True)):
        bottom = full * box.y0 - sum(saved[index + 1 :])
        ax.set_position((box.x0, bottom / left, box.width, (full * box.height - saved[index]) / left))
    picture.set_size_inches(width, left)
    for text in picture.texts:
        text.set_y(1 - (1 - text.get_position()[1]) * full / left)


def _panel(ax: Axes, table: pd.DataFrame, low: float, high: float) -> None:
    rows, devices = table[table["way"].ne(REST)], int(table["devices"].iloc[0])
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(0.6 - len(rows), 0.6)
    before = float("nan")
    for x, name in (COLUMNS[0], "times one"), (COLUMNS[1], "share"):
        ax.text(x, 0.85, name, transform=ax.get_yaxis_transform(), fontsize=8, ha="right", va="bottom", alpha=0.75)
    for place, (_, row) in enumerate(rows.iterrows()):
        y = -place
        if missing(row["speedup"]):
            ax.annotate(str(row["why"]), (low, y), (4, 0), textcoords="offset points", va="center", fontsize=8, alpha=0.75, style="italic")
            continue
        value, told = float(row["speedup"]) / devices, not missing(row["share"])
        edge, end = sorted((before if told else low, value))
        _, colour, hatch = LOOKS.get(str(row["cause"]), ("", GREY, ""))
        ax.barh(y, end - edge, 0.66, left=edge, color=colour if told else GREY, hatch=hatch, edgecolor=INK, linewidth=0.4)
        if not missing(row["low"]):
            ax.plot([row["low"] / devices, row["high"] / devices], [y, y], color=INK, linewidth=1.2)
        texts = (f"{row['speedup']:.2f}", share_text(float(row["share"])) if told else "")
        for x, text in zip(COLUMNS, texts, strict=True):
            ax.text(x, y, text, transform=ax.get_yaxis_transform(), fontsize=8.5, ha="right", va="center")
        before = value if told or missing(before) else before
    for x, line in ((1.0, "--"), (GOAL / OF, ":")):
        ax.axvline(x, color=INK, linestyle=line, linewidth=1.0, alpha=0.6, zorder=0.5)
    ax.set_yticks([-place for place in range(len(rows))], [_way(row) for _, row in rows.iterrows()])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ticks = [tick for tick in (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0) if low <= tick <= high]
    ax.set_xticks(ticks, [f"{100 * tick:.0f}%" for tick in ticks])
    ax.minorticks_off()


def _finding(drawn: Sequence[pd.DataFrame], device_type: str) -> str | None:
    """Where a chain begins and ends, and what surely gave most of it back: of our chains one that has 2018's way, of those the one with
    most ways. Shares that rest on a start measured once, or that intervals do not tell from none, have no place in a title.
    """
    ours = [table for table in drawn if table["chain"].iloc[0] != DOCUMENT]
    if not ours:
        return None
    begun = [table for table in ours if table.loc[table["way"].eq(START), "speedup"].notna().any()]
    table = max(begun or ours, key=lambda own: int(own["speedup"].notna().sum()))
    told, ways = table[table["speedup"].notna() & ~table["way"].isin([CEILING, REST])], measured(table)
    if len(ways) < 2:
        return None
    first, last = told.iloc[0], ways.iloc[-1]
    if last["speedup"] <= first["speedup"]:
        return None
    on = devices_text(int(table["devices"].iloc[0]), device_type)
    head = f"From {first['speedup']:.2f} to {last['speedup']:.2f} times one on {on} ({table['chain'].iloc[0]})"
    if first["way"] != START:
        return f"{head}; 2018's way itself was not measured there"
    gains = told[told["share"].notna()]
    sure = gains[gains["share_low"].gt(0)]
    if len(sure):
        best = sure.iloc[int(sure["share"].to_numpy().argmax())]
        return f"{head}: “{best['way']}” gives back {share_text(float(best['share']))} of what was lost"
    return f"{head}; launches differ too much to tell what gave it back" if gains["share_low"].notna().any() else head


DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
"""Of ways of one placement, which share its colour."""
PLACEMENTS = {label: str(fields["placement"]) for sweep in SWEEPS.values() for label, fields in sweep.ways}
"""Of each way of a sweep."""


def figure_sweeps(sweeps: Sequence[tuple[str, pd.DataFrame]], device_type: str = "cuda") -> Picture:
    """Speedup on each way's most devices over host cores and over the batch: a panel a sweep and number of devices, a line a way.

    sweeps: (label of the axis, rows of `lost_speed_sweeps.sweep_rows`). "all" stands at the threads that a replica had.
    """
    panels = []
    for label, rows in sweeps:
        known = rows[rows["speedup"].notna() & rows["devices"].gt(1)]
        most = known[known["devices"] == known.groupby("way")["devices"].transform("max")] if len(known) else known
        most = most.groupby("way", sort=False).filter(lambda own: len(own) > 1) if len(most) else most
        panels += [(label, own) for _, own in most.groupby("devices", sort=False)]
    if not panels:
        return message("No sweep to draw: no way was measured on several devices with two values of host cores or batch (grid causes).")
    names = [f"By {label}, {devices_text(int(rows['devices'].iloc[0]), device_type)}" for label, rows in panels]
    with mpl.rc_context(RC):
        ends = [way for _, rows in panels for way in rows["way"]]
        picture, axes = grid_of_axes(len(panels), None, 3.4, 1.9, 1, margin_for(ends, 0.8), names=names)
        for ax, name, (label, rows) in zip(axes, names, panels, strict=True):
            name_panel(ax, name)
            _lines(ax, label, rows)
    picture.data = pd.concat([rows.assign(sweep=label) for label, rows in panels], ignore_index=True)
    picture.caption = (
        "Speedup over one device done the same way with the same value, log scale below. Bars: 95%; without, a side was measured once "
        "(screening). Colours are placements; round marks: one process dispatches for all devices. All cores: drawn at the threads of all "
        "replicas together. "
        f"{', '.join(dict.fromkeys(picture.data['machine']))}."
    )
    picture.alt = "Lines of speedups. " + "; ".join(
        f"{way}: " + ", ".join(f"{value} {speedup:.2f}" for value, speedup in zip(own["value"], own["speedup"], strict=True))
        for _, rows in panels
        for way, own in by_way(rows)
    )
    return picture


def by_way(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each way, in their order."""
    return [(str(way), own) for way, own in rows.groupby("way", sort=False)]


def _lines(ax: Axes, label: str, rows: pd.DataFrame) -> None:
    ends = []
    seen: Counter[str] = Counter()
    for way, own in by_way(rows):
        placement = PLACEMENTS[way]
        colour, dash = look(placement).colour, DASHES[seen[placement] % len(DASHES)]
        seen[placement] += 1
        one = "one process" in str(way)
        threads = own["host_threads"].astype(float) * (1 if one else own["devices"])
        x = [float(t) if value == "all" else float(value) for value, t in zip(own["value"], threads, strict=True)]
        ax.plot(x, own["speedup"], color=colour, marker="o" if one else "s", linestyle=dash)
        for at, (_, row) in zip(x, own.iterrows(), strict=True):
            if not missing(row["low"]):
                ax.plot([at, at], [row["low"], row["high"]], color=colour, linewidth=3, alpha=0.45)
        ends.append((x[-1], float(own["speedup"].iloc[-1]), str(way), colour))
    devices = int(rows["devices"].iloc[0])
    ax.axhline(devices, color=INK, linestyle="--", linewidth=1.0, alpha=0.7)
    ax.set_ylim(0, 1.08 * max(devices, float(rows["speedup"].max())))
    ax.set_xscale("log", base=2)
    values: list[int] = []
    for value in sorted({int(value) for value in rows["value"] if value != "all"}):
        if not values or value >= 1.6 * values[-1]:  # labels of neighbours would touch
            values.append(value)
    ticks = {float(value): f"{value:,}" for value in values}
    if (whole := max((x for x, _, _, _ in ends), default=0.0)) > 1.6 * max(ticks, default=0.0) and "all" in set(rows["value"]):
        ticks[whole] = "all"
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.minorticks_off()
    ax.set_xlabel(f"{label} (log scale)")
    ax.set_ylabel("times one device")
    label_lines(ax, ends, 1.9)
