"""Time and bus bandwidth of all-reduces against the size of the message: a line a method, the link as the limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from multigpu.analysis.collectives import collectives_summary
from multigpu.analysis.layout import grid_of_axes, label_lines, margin_for, name_panel
from multigpu.analysis.limits import CEILINGS, Ceiling, ceilings
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, INK, RC, Look
from multigpu.analysis.wording import devices_text, joined, percent_text, ratio_text
from multigpu.collectives.run import size_text

WIDTH, HEIGHT = 3.6, 2.9

_LOOKS: dict[str, tuple[str, str, str]] = {
    "nccl": (INK, "D", "NCCL"),
    "gloo": (INK, "D", "gloo"),
    "two_shot": ("#d1497a", "*", "torch two-shot"),
    "ring": ("#0072b2", "o", "ring"),
    "torus": ("#3a92cc", ">", "2-D torus"),
    "halving_doubling": ("#009e73", "s", "halving, doubling"),
    "tree": ("#5c9b1e", "h", "tree"),
    "hierarchical": ("#0f8f9f", "p", "two levels"),
    "central_server": ("#d55e00", "^", "central server"),
    "everyone": ("#aa3377", "v", "everyone"),
    "everyone_bf16": ("#cc79a7", "<", "everyone, bf16"),
    "everyone_fp16": ("#6a5acd", "X", "everyone, fp16"),
}
LIBRARY_LINE: dict[str, Any] = {"linewidth": 2.2}
LIES_UNDER = ("everyone_bf16",)
"""Methods whose line lies under another's of as many bytes: drawn wider and first, so that both are seen."""
UNDER: dict[str, Any] = {"linewidth": 5.0, "markersize": 9, "alpha": 0.55}


def method_look(method: str) -> Look:
    """How a method looks on every page; one not known here is drawn in grey."""
    colour, marker, label = _LOOKS.get(method, (CEILING, "d", method))
    return Look(colour, marker, list(_LOOKS).index(method) if method in _LOOKS else len(_LOOKS), label)


def link_limit(gpu: str) -> Ceiling | None:
    """What a device's link carries one way at most: the data sheet's figure, which nothing can exceed; else a measured copy's."""
    sheet = [ceiling for part, table in CEILINGS.items() if gpu and part in gpu for ceiling in table if ceiling.quantity == "device_link"]
    return sheet[0] if sheet else ceilings(gpu).get("device_link") if gpu else None


def seconds_text(seconds: float) -> str:
    """A time with its unit: "10 µs", "1.5 ms", "2 s"."""
    factor, unit = next(((f, u) for f, u in ((1.0, "s"), (1e-3, "ms")) if seconds >= f), (1e-6, "µs"))
    return f"{seconds / factor:.3g} {unit}"


def figure_collectives(
    frame: pd.DataFrame,
    devices: int | None = None,
    execution: str | None = None,
    dtype: str = "fp32",
    machine: str | None = None,
    marks: Mapping[str, int] | None = None,
    finding: str | None = None,
) -> Picture:
    """Time a call and bus bandwidth against bytes, a line a method, for one machine, number of devices and form of execution.

    Args:
        frame: of `collectives_frame`.
        devices: how many; the most measured unless given.
        execution: captured where it was measured, unless given.
        machine: the one with the most points unless given.
        marks: sizes in bytes to mark, by a short name each.
        finding: the title; what the largest message says unless given.
    """
    table = collectives_summary(frame)
    table = table[table["dtype"] == dtype]
    for column, wanted, choose in (
        ("machine", machine, lambda values: values.mode().iloc[0]),
        ("devices", devices, lambda values: values.max()),
        ("execution", execution, lambda values: "captured" if (values == "captured").any() else values.iloc[0]),
    ):
        if len(table):
            table = table[table[column] == (choose(table[column]) if wanted is None else wanted)]
    if table.empty:
        return message("No all-reduce to draw: no Record with status ok was measured so.")
    table = table.sort_values("method", key=lambda names: names.map(lambda name: method_look(name).order), kind="stable")
    first = table.iloc[0]
    link = link_limit(first["gpu"])
    with mpl.rc_context(RC):
        names = [method_look(name).label for name in table["method"].unique()]
        panels = ["Time of one all-reduce", "Bus bandwidth"]
        picture, axes = grid_of_axes(2, finding or _finding(table, link), WIDTH, HEIGHT, 2, margin_for(names, 0.95), names=panels)
        _panel(axes[0], panels[0], table, "time_s", 1.0, None)
        _panel(axes[1], panels[1], table, "bus_bytes_per_s", 1e-9, link)
        axes[1].set_ylabel("GB/s")
        for ax in axes:
            _mark(ax, marks or {}, named=ax is axes[0])
    picture.caption = _caption(table, frame, link)
    if marks:
        sizes = joined([f"{name} ({size / 1e6:.0f} MB)" for name, size in marks.items()])
        picture.caption += f" Dashed: the gradients of {sizes}."
    picture.data = table.reset_index(drop=True)
    picture.alt = _alt(table, link)
    return picture


def _mark(ax: Axes, marks: Mapping[str, int], named: bool) -> None:
    """A dashed line at each size; if `named`, its name along its foot, of the largest to the right of it."""
    for name, size in marks.items():
        ax.axvline(size, color=CEILING, linewidth=1.0, linestyle=(0, (3, 2)), zorder=0)
        if named:
            last = size == max(marks.values())
            foot: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "rotation": 90, "fontsize": 8.5}
            ax.annotate(name, (size, 0.04), (2 if last else -2, 0), ha="left" if last else "right", va="bottom", color=CEILING, **foot)


def _panel(ax: Axes, name: str, table: pd.DataFrame, column: str, factor: float, link: Ceiling | None) -> None:
    name_panel(ax, name)
    ends: list[tuple[float, float, str, str]] = []
    most = float(table["bytes"].max())
    for method, group in table.groupby("method", sort=False):
        style, line = method_look(str(method)), group.sort_values("bytes")
        x, y = line["bytes"].to_numpy(float), factor * line[column].to_numpy(float)
        if column == "time_s":
            low, high = factor * line["time_low_s"].to_numpy(float), factor * line["time_high_s"].to_numpy(float)
            ax.fill_between(x, low, high, color=style.colour, alpha=0.12, linewidth=0)
        more = LIBRARY_LINE if line["kind"].iloc[0] == "library" else UNDER if method in LIES_UNDER else {}
        plain: dict[str, Any] = {"marker": style.marker, "color": style.colour, "markersize": 4, "clip_on": False}
        ax.plot(x, y, **plain | more)
        if x[-1] == most:
            ends.append((x[-1], y[-1], style.label, style.colour))
        else:  # the line ends early: its name stays with it
            ax.annotate(style.label, (x[-1], y[-1]), (5, 0), textcoords="offset points", color=style.colour, fontweight="bold")
    ax.set_xscale("log", base=2)
    if column == "time_s":
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds_text(value)))
    else:
        ax.set_ylim(0, 1.12 * max([factor * float(table[column].max()), *([factor * link.value] if link else [])]))
    if link:
        limit = factor * link.value
        ax.axhline(limit, color=CEILING, linewidth=1.4)
        ax.annotate(
            f"link {limit:.0f}", (0.02, limit), (0, 3), xycoords=("axes fraction", "data"), textcoords="offset points", color=CEILING
        )
    sizes = sorted(table["bytes"].unique())
    step = -(-len(sizes) // 5)
    ax.xaxis.set_major_locator(FixedLocator(sizes[::-1][::step][::-1]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_text(round(value))))
    ax.set_xlabel("bytes on each process")
    label_lines(ax, ends, HEIGHT)


def _finding(table: pd.DataFrame, link: Ceiling | None) -> str | None:
    """What the largest message says: the best bus bandwidth with its share of the link, or the fastest method beside the library."""
    largest = table[table["bytes"] == table["bytes"].max()]
    best = largest.loc[largest["bus_bytes_per_s"].idxmax()]
    size, name = size_text(int(best["bytes"])), method_look(best["method"]).label
    on = devices_text(best["devices"], best["device_type"])
    if link:
        share = percent_text(best["bus_bytes_per_s"] / link.value)
        return f"At {size} on {on} the best bus bandwidth is {best['bus_bytes_per_s'] / 1e9:.0f} GB/s ({name}): {share} of the link"
    others = largest[largest["kind"] == ("algorithm" if best["kind"] == "library" else "library")]
    if others.empty:
        return None
    second = others.loc[others["time_s"].idxmin()]
    ratio = second["time_s"] / best["time_s"]
    if best["time_high_s"] >= second["time_low_s"]:
        return None  # the samples overlap: no order is claimed
    return f"At {size} on {on}, {name} is fastest: {ratio_text(ratio)} as fast as {method_look(second['method']).label}"


def _caption(table: pd.DataFrame, frame: pd.DataFrame, link: Ceiling | None) -> str:
    first = table.iloc[0]
    low, high = int(table["samples"].min()), int(table["samples"].max())
    samples = f"{low}" if low == high else f"{low} to {high}"
    asked = (frame["machine"] == first["machine"]) & (frame["devices"] == first["devices"]) & (frame["execution"] == first["execution"])
    missing = frame[asked & (frame["dtype"] == first["dtype"]) & (frame["status"] != "ok")]
    gaps = "; ".join(
        dict.fromkeys(f"{method_look(row['method']).label} at {size_text(row['bytes'])} ({row['status']})" for _, row in missing.iterrows())
    )
    how = "CUDA events, calls captured in one graph" if first["execution"] == "captured" else "CUDA events"
    clock = how if first["device_type"] == "cuda" else "the host's clock, from a barrier"
    return (
        f"All-reduce of {first['dtype']} on {devices_text(first['devices'], first['device_type'])}, {first['execution']}; time a call of "
        f"the slowest process by {clock}; median of {samples} samples, the band from the fastest to the slowest. Bus bandwidth is "
        "2(P-1)/P times bytes over time (nccl-tests); heavy lines are libraries, the others are written out from sends and receives. "
        + ("Methods with bf16 or fp16 on the wire send half the bytes. " if table["method"].str.contains("_[bf]").any() else "")
        + ("The wide line is that of bf16, under that of fp16. " if {"everyone_bf16", "everyone_fp16"} <= set(table["method"]) else "")
        + (f"The link is one way of one device ({link.how}: {link.source}). " if link else "")
        + f"{first['machine']}."
        + (f" Missing: {gaps}." if gaps else "")
        + _never_measured(table, missing)
    )


def _never_measured(table: pd.DataFrame, failed: pd.DataFrame) -> str:
    """Which sizes lie within a line's reach and have no point, so that the line passes over them."""
    tried = {(row["method"], row["bytes"]) for part in (table, failed) for _, row in part.iterrows()}
    lacking: dict[int, list[str]] = {}
    for method, line in table.groupby("method", sort=False):
        for size in sorted(set(table["bytes"])):
            if line["bytes"].min() < size < line["bytes"].max() and (method, size) not in tried:
                lacking.setdefault(size, []).append(method_look(str(method)).label)
    parts = [f"{size_text(size)} of {joined(names)}" for size, names in lacking.items()]
    return f" Not measured, and passed over by the lines: {'; '.join(parts)}." if parts else ""


def _alt(table: pd.DataFrame, link: Ceiling | None) -> str:
    ends = []
    for method, group in table.groupby("method", sort=False):
        line = group.sort_values("bytes")
        small, large = line.iloc[0], line.iloc[-1]
        ends.append(
            f"{method_look(str(method)).label} {seconds_text(small['time_s'])} at {size_text(int(small['bytes']))}, "
            f"{large['bus_bytes_per_s'] / 1e9:,.2f} GB/s at {size_text(int(large['bytes']))}"
        )
    limit = f" The link carries {link.value / 1e9:.0f} GB/s one way." if link else ""
    return f"Lines of time and bus bandwidth against message size. {'; '.join(ends)}.{limit}"
