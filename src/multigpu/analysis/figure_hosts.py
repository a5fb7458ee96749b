"""Figures of all-reduces between hosts: time and counted bytes against their number, and document 004's step."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from multigpu.analysis.figure_collectives import method_look, seconds_text
from multigpu.analysis.hosts import document_steps, growth
from multigpu.analysis.hosts_findings import document_finding, growth_once_finding, link_text
from multigpu.analysis.layout import grid_of_axes, label_lines, margin_for, name_panel
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, INK, RC
from multigpu.analysis.wording import joined
from multigpu.collectives.run import size_text
from multigpu.hosts.grid import COMPUTE_MS, SCALE

WIDTH, HEIGHT = 3.6, 2.9
SHOWN = ("gloo", "ring", "halving_doubling", "tree", "central_server", "everyone")
"""Methods of the figure of growth: no more than seven lines."""


def _plain(finding: str | None) -> str | None:
    return finding.replace("**", "").rstrip(".") if finding else None


def counts_axis(ax: Axes, counts: list[int], label: str) -> None:
    """An axis of these numbers, by powers of two."""
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(counts))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    ax.set_xlabel(label)


def figure_growth(frame: pd.DataFrame) -> Picture:
    """Left: time against the number of hosts, a line a method, its formula dashed; right: what the busiest interface carried."""
    table = growth(frame)
    table = table[table["method"].isin(SHOWN)]
    if table.empty:
        return message("No all-reduce between hosts has been measured.")
    table = table.sort_values("method", key=lambda names: names.map(lambda name: method_look(name).order), kind="stable")
    counts = sorted(int(count) for count in table["devices"].unique())
    with mpl.rc_context(RC):
        names = [method_look(str(name)).label for name in table["method"].unique()]
        panels = ["Time of one all-reduce", "Bytes on the busiest host's interface, one way"]
        picture, axes = grid_of_axes(2, _plain(growth_once_finding(frame)), WIDTH, HEIGHT, 2, margin_for(names, 0.95), names=panels)
        for ax, name, column, formula in zip(axes, panels, ("time_s", "sent_bytes"), ("link_s", "way_bytes"), strict=True):
            name_panel(ax, name)
            ends = []
            for method, line in table.groupby("method", sort=False):
                look, x = method_look(str(method)), line["devices"].to_numpy(float)
                y = line[column].to_numpy(float)
                ax.plot(x, y, marker=look.marker, color=look.colour, markersize=4, clip_on=False)
                ax.plot(x, line[formula].to_numpy(float), color=look.colour, linewidth=1.0, linestyle=(0, (3, 2)), zorder=0)
                ends.append((x[-1], y[-1], look.label, look.colour))
            ax.set_yscale("log", base=2)
            unit = seconds_text if column == "time_s" else lambda value: size_text(round(value))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _, unit=unit: unit(value)))
            counts_axis(ax, counts, "hosts")
            label_lines(ax, ends, HEIGHT)
    size, rate = size_text(int(table["bytes"].iloc[0])), float(table["rate_bytes_per_s"].iloc[0])
    picture.caption = (
        f"All-reduce of {size} in fp32 by processes on CPUs over gloo, one a host, links of {link_text(rate)} each way; time a call of the "
        "slowest process by the host's clock, from a barrier, median of ten samples. Dashed: by formula, bytes that must follow each other "
        "over the link's rate less headers (left), bytes that the busiest process sends or receives (right); a library's formula is the "
        f"least possible, 2N(P-1)/P, and has none on the right. {table['machine'].iloc[0]}."
    )
    picture.data = table.reset_index(drop=True)
    picture.alt = "Lines of time and of bytes against hosts. " + "; ".join(
        f"{method_look(str(row['method'])).label} on {int(row['devices'])}: {seconds_text(row['time_s'])}" for _, row in table.iterrows()
    )
    return picture


def figure_document(frame: pd.DataFrame, per_host: int, other: int | None = None) -> Picture:
    """Document 004's step against the number of processes: its own, and ours by method, for one or two numbers of processes a host."""
    shapes = [shape for shape in (per_host, other) if shape]
    tables = {shape: document_steps(frame, shape) for shape in shapes}
    tables = {shape: table for shape, table in tables.items() if (table["devices"] > 1).any()}
    if not tables:
        return message("Document 004's step has not been measured between hosts.")
    with mpl.rc_context(RC):
        panels = [f"{shape} process{'es' if shape > 1 else ''} a host" for shape in tables]
        every = [method_look(str(name)).label for table in tables.values() for name in table["method"].unique()]
        finding = _plain(document_finding(frame, next(iter(tables))))
        picture, axes = grid_of_axes(len(tables), finding, WIDTH, HEIGHT, 2, margin_for([*every, "document 004"]), names=panels)
        top = max(float(table["time_s"].max()) for table in tables.values()) * 1000
        for ax, name, table in zip(axes, panels, tables.values(), strict=True):
            _steps_panel(ax, name, table, top)
    picture.caption = (
        f"Compute is a stand-in: every process sleeps {COMPUTE_MS} ms, the document's step on one GPU, then sums its gradients with the "
        f"others, with no overlap. Bytes and bandwidth are those of the document (717.67 MB, 100 Gbit/s) divided by {SCALE:g}, so that "
        "transfers take the time they would take there. Processes on CPUs over gloo; those of one host have no link between them. Median "
        f"of six steps. {joined(sorted(set(_machines(frame, tables))))}."
    )
    picture.data = pd.concat([table.assign(per_host=shape) for shape, table in tables.items()], ignore_index=True)
    picture.alt = "Lines of step time against processes. " + "; ".join(
        f"{method_look(str(row['method'])).label}, {int(row['per_host'])} a host, on {int(row['devices'])}: {1000 * row['time_s']:.0f} ms"
        for _, row in picture.data.iterrows()
    )
    return picture


def _machines(frame: pd.DataFrame, tables: dict[int, pd.DataFrame]) -> list[str]:
    keys = {key for table in tables.values() for key in table["key"]}
    return [str(name) for name in frame.loc[frame["key"].isin(keys), "machine"]]


def _steps_panel(ax: Axes, name: str, table: pd.DataFrame, top: float) -> None:
    name_panel(ax, name)
    ends = []
    one = table[table["devices"] == 1]
    several = table[table["devices"] > 1]
    several = several.sort_values("method", key=lambda names: names.map(lambda method: method_look(method).order), kind="stable")
    for method, line in several.groupby("method", sort=False):
        look, points = method_look(str(method)), pd.concat([one, line])
        x, y = points["devices"].to_numpy(float), 1000 * points["time_s"].to_numpy(float)
        ax.plot(x, y, marker=look.marker, color=look.colour, markersize=4, clip_on=False)
        ends.append((x[-1], y[-1], look.label, look.colour))
    document = table.dropna(subset=["document_s"]).drop_duplicates("devices").sort_values("devices")
    x, y = document["devices"].to_numpy(float), 1000 * document["document_s"].to_numpy(float)
    ax.plot(x, y, color=INK, marker="D", markersize=4, linestyle=(0, (3, 2)), clip_on=False)
    ends.append((x[-1], y[-1], "document 004", INK))
    ax.axhline(COMPUTE_MS, color=CEILING, linewidth=1.0)
    ax.set_ylim(0, 1.08 * max(top, float(y.max())))
    ax.set_ylabel("step (ms)")
    counts_axis(ax, sorted({1, *(int(count) for count in table["devices"])}), "processes")
    label_lines(ax, ends, HEIGHT)
