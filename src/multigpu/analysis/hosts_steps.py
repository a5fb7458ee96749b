"""Training steps between hosts: the table, the figure and the sentence of PyTorch's and TensorFlow's own data parallelism."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.ticker import FuncFormatter

from multigpu.analysis.figure_hosts import counts_axis
from multigpu.analysis.hosts import link_time_s
from multigpu.analysis.hosts_findings import link_text
from multigpu.analysis.layout import grid_of_axes, label_lines, margin_for, name_panel
from multigpu.analysis.picture import Picture, Shown, message
from multigpu.analysis.style import CEILING, FRAMEWORK_LINES, RC, look
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import MODEL_NAMES, joined, percent_text, plural, ratio_text
from multigpu.record import Record, RecordStore

COLUMNS = (
    "key",
    "machine",
    "commit",
    "framework",
    "placement",
    "model",
    "parameters",
    "hosts",
    "repeat",
    "step_time_s",
    "link_s",
    "rate_bytes_per_s",
)
NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow"}
NOTHING = "No training step between hosts has been measured: `python -m multigpu hosts --parts steps` does, as root on Linux."
WIDTH, HEIGHT = 4.2, 2.9


def steps_frame(records: Iterable[Record] | Path) -> pd.DataFrame:
    """A row a Record of one process a host that is ok, in order of framework, hosts and repeat: COLUMNS.

    step_time_s: wall time of the timed steps over their number. link_s: what 2N(P-1)/P bytes of gradients in fp32 take on a link of
    the Record's rate, less headers (0 on one host, nan where the network's words name no rate).

    Raises:
        ValueError: a file is no Record; the sentence names it.
    """
    found = RecordStore(records) if isinstance(records, Path) else records
    rows = []
    for record in found:
        machine, run, measured = record.machine, record.run, record.measurement
        if machine.processes_per_host != 1 or measured is None:
            continue
        rate = re.match(r"([\d.]+) Mbit/s", machine.network)
        per_s = float(rate[1]) * 1e6 / 8 if rate else float("nan")
        parameters = run.description.parameters
        rows.append(
            {
                "key": record.key,
                "machine": machine.name,
                "commit": record.commit,
                "framework": run.framework,
                "placement": run.placement,
                "model": run.model,
                "parameters": parameters,
                "hosts": run.devices,
                "repeat": record.repeat,
                "step_time_s": measured.wall_s / run.timed_steps,
                "link_s": link_time_s("ring", 4 * parameters, run.devices, per_s) if run.devices > 1 else 0.0,
                "rate_bytes_per_s": per_s,
            }
        )
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.sort_values(["framework", "hosts", "repeat"], ascending=[False, True, True], kind="stable").reset_index(drop=True)


def steps_summary(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a framework, placement and number of hosts.

    Columns: framework, placement, hosts, time_s (the median repeat), low_s, high_s (the fastest and the slowest), n (repeats), link_s.
    """
    groups = frame.groupby(["framework", "placement", "hosts"], sort=False)
    summary = groups.agg(
        time_s=("step_time_s", "median"),
        low_s=("step_time_s", "min"),
        high_s=("step_time_s", "max"),
        n=("key", "count"),
        link_s=("link_s", "first"),
    )
    return summary.reset_index()


def name_of(framework: str, placement: str) -> str:
    """Such as PyTorch's ddp."""
    return f"{NAMES[framework]}'s {look(placement).label}"


def steps_table(frame: pd.DataFrame) -> Shown:
    """Hosts in rows, frameworks in columns: milliseconds a step with the range of its repeats, beside what the links need."""
    summary, rows = steps_summary(frame), []
    for hosts, line in summary.groupby("hosts"):
        cells = {"hosts": f"{hosts}"}
        for _, row in line.iterrows():
            several = f" ({1000 * row['low_s']:,.0f} to {1000 * row['high_s']:,.0f}, n = {row['n']})" if row["n"] > 1 else " (n = 1)"
            cells[f"{name_of(row['framework'], row['placement'])} (ms)"] = f"{1000 * row['time_s']:,.0f}{several}"
        cells["links, by formula (ms)"] = f"{1000 * line['link_s'].iloc[0]:,.0f}"
        rows.append(cells)
    data = pd.DataFrame(rows).fillna("not measured")
    note = "The median repeat, the fastest and the slowest. Formula: 2N(P-1)/P bytes of gradients over the link's rate less headers."
    return table_html(data, note=note if rows else NOTHING, right=[str(name) for name in data if name != "hosts"])


def steps_finding(frame: pd.DataFrame) -> str | None:
    """What a step takes on the most hosts in each framework, over one host and beside what the links need; None without both ends."""
    summary = steps_summary(frame)
    if summary.empty:
        return None
    most, parts = int(summary["hosts"].max()), []
    for (framework, placement), line in summary.groupby(["framework", "placement"], sort=False):
        by_hosts = line.set_index("hosts")
        if most > 1 and {1, most} <= set(by_hosts.index):
            one, least, longest = (float(by_hosts[name][1]) for name in ("time_s", "low_s", "high_s"))
            several, low, high, links = (float(by_hosts[name][most]) for name in ("time_s", "low_s", "high_s", "link_s"))
            repeated = min(int(by_hosts["n"][at]) for at in (1, most)) > 1
            repeats = f", by repeats {low / longest:.1f} to {high / least:.1f}" if repeated else ""
            parts.append(
                f"**{1000 * several:,.0f} ms** with {name_of(str(framework), str(placement))} "
                f"({ratio_text(several / one)} the {1000 * one:,.0f} ms on one host{repeats}; the links alone need "
                f"{1000 * links:,.0f} ms, {percent_text(links / several)} of it)"
            )
    if not parts:
        return None
    return f"On {_hosts_words(frame, most)} a step of the {_model(frame)} takes {joined(parts)}"


def _hosts_words(frame: pd.DataFrame, count: int) -> str:
    """So many hosts, and the rate of their links: "4 hosts with links of 200 Mbit/s"."""
    rates = sorted(set(frame["rate_bytes_per_s"].dropna()))
    return plural(count, "host") + (f" with links of {joined([link_text(rate) for rate in rates])}" if rates else "")


def _title(frame: pd.DataFrame) -> str | None:
    """The same in short, for the figure: the steps on the most hosts and what the links alone need there."""
    if steps_finding(frame) is None:
        return None
    summary = steps_summary(frame)
    most = summary[summary["hosts"] == summary["hosts"].max()]
    parts = [f"{1000 * row['time_s']:,.0f} ms with {name_of(row['framework'], row['placement'])}" for _, row in most.iterrows()]
    on = _hosts_words(frame, int(summary["hosts"].max()))
    return f"On {on} a step takes {joined(parts)}; the links alone need {1000 * most['link_s'].iloc[0]:,.0f} ms"


def figure_steps(frame: pd.DataFrame) -> Picture:
    """Step time against the number of hosts, a line a framework with the range of its repeats; the links' share by formula, in grey."""
    summary = steps_summary(frame)
    if summary.empty:
        return message("No training step between hosts has been measured.")
    panel, formula = "Time of a training step", "links, by formula"
    names = [name_of(row["framework"], row["placement"]) for _, row in summary.iterrows()]
    with mpl.rc_context(RC):
        margin = margin_for([*names, formula])
        picture, (ax,) = grid_of_axes(1, _title(frame), WIDTH, HEIGHT, 1, margin, names=[panel])
        name_panel(ax, panel)
        ends = []
        for (framework, placement), line in summary.groupby(["framework", "placement"], sort=False):
            own, x = look(str(placement)), line["hosts"].to_numpy(float)
            y, low, high = (1000 * line[column].to_numpy(float) for column in ("time_s", "low_s", "high_s"))
            ax.errorbar(
                *(x, y, [y - low, high - y]),
                **{"color": own.colour, "marker": own.marker, "markersize": 5, "capsize": 3, "linestyle": FRAMEWORK_LINES[str(framework)]},
            )
            ends.append((x[-1], y[-1], name_of(str(framework), str(placement)), own.colour))
        links = summary.drop_duplicates("hosts").sort_values("hosts")
        ax.plot(links["hosts"], 1000 * links["link_s"], color=CEILING, linewidth=1.0, linestyle=(0, (3, 2)), zorder=0)
        ends.append((float(links["hosts"].iloc[-1]), 1000 * float(links["link_s"].iloc[-1]), formula, CEILING))
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f} ms"))
        counts_axis(ax, sorted(int(count) for count in summary["hosts"].unique()), "hosts")
        label_lines(ax, ends, HEIGHT)
    repeats = sorted({int(count) for count in summary["n"]})
    times = f"{repeats[0]}" if len(repeats) == 1 else f"{repeats[0]} to {repeats[-1]}"
    picture.caption = (
        f"{_model(frame)} ({frame['parameters'].iloc[0]:,} parameters), one CPU process a host. Points: the "
        f"median of {times} Records; bars: the fastest and the slowest. Dashed grey: 2N(P-1)/P bytes of gradients over the link's rate "
        f"less headers. {joined(sorted(set(frame['machine'])))}."
    )
    picture.data = summary
    picture.alt = "Lines of step time against hosts. " + "; ".join(
        f"{name_of(row['framework'], row['placement'])} on {row['hosts']}: {1000 * row['time_s']:,.0f} ms" for _, row in summary.iterrows()
    )
    return picture


def _model(frame: pd.DataFrame) -> str:
    """The name of the model that the frame's first row trains."""
    name = str(frame["model"].iloc[0])
    return MODEL_NAMES.get(name, name)
