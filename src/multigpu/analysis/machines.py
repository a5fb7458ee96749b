"""The machines of the Records: a table of what they are, and their links as a matrix picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import matplotlib as mpl
import pandas as pd

from multigpu.analysis.frame import as_store
from multigpu.analysis.limits import ceilings
from multigpu.analysis.picture import Picture, Shown, message
from multigpu.analysis.style import INK, RC
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import plural
from multigpu.measure.machine import Machine
from multigpu.reading import stored_records
from multigpu.record import Record, RecordStore

# link -> fill, sign: signs keep it readable without colour
LINKS = {"NVLink": ("#0072b2", "N"), "PCIe": ("#b07a00", "P"), "self": ("none", ""), "unknown": ("none", "?")}


def machines(records: RecordStore | Path | str | Iterable[Record]) -> dict[str, Machine]:
    """Every machine of the Records by name, as the latest Record of each describes it."""
    source = stored_records(as_store(records).root) if isinstance(records, RecordStore | Path | str) else records
    latest: dict[str, Record] = {}
    for record in source:
        held = latest.get(record.machine.name)
        if held is None or held.measured_at <= record.measured_at:
            latest[record.machine.name] = record
    return {name: latest[name].machine for name in sorted(latest)}


def machine_line(machine: Machine) -> str:
    """The machine in one line: "8 x NVIDIA H200 (140 GiB each, NVLink), 128 cores of ..., 560 GiB, driver 570.0"."""
    host = f"{plural(machine.cores, 'core')} of {machine.cpu}, {machine.memory_gib:,.0f} GiB"
    if not machine.gpus:
        return f"{host}, no GPU: CPU processes stand in for devices"
    kinds = [kind for kind in LINKS if any(kind in row for row in machine.links) and kind != "self"]
    linked = f", {' and '.join(kinds)} between them" if kinds else ""
    return f"{len(machine.gpus)} x {machine.gpus[0]} ({machine.gpu_memory_gib[0]:,.0f} GiB each{linked}), {host}, driver {machine.driver}"


def machine_table(known: dict[str, Machine], title: str = "") -> Shown:
    """What each machine is: a row a fact, a column a machine; the environment variables that matter are listed where set."""
    facts = {
        name: {
            "GPUs": f"{len(m.gpus)} x {m.gpus[0]}" if m.gpus else "none",
            "GPU memory": f"{m.gpu_memory_gib[0]:,.1f} GiB each" if m.gpus else "–",
            "driver": m.driver or "–",
            "CPU": m.cpu,
            "cores this study may use": str(m.cores),
            "memory": f"{m.memory_gib:,.1f} GiB",
            "kernel": m.kernel,
            "Python": m.python,
            "environment": ", ".join(f"{key}={value}" for key, value in m.environment.items()) or "nothing that matters is set",
        }
        for name, m in known.items()
    }
    data = pd.DataFrame(facts)
    data.insert(0, "fact", data.index)
    return table_html(data if known else pd.DataFrame(), title, "" if known else "No machine to show: no Record yet.")


def ceilings_table(gpu: str, title: str = "") -> Shown:
    """The ceilings used for bounds on this GPU, each with its source."""
    names = {"memory": "memory, copy", "device_link": "link between GPUs, one way", "host_link": "link to the host, one way"}
    rows = [
        {
            "ceiling": names.get(c.quantity, f"{c.quantity} arithmetic"),
            "value": f"{c.value / 1e12:,.1f} TFLOP/s" if c.unit == "FLOP/s" else f"{c.value / 1e9:,.0f} GB/s",
            "how": c.how,
            "source": f"{c.source}, {c.date}",
        }
        for c in ceilings(gpu).values()
    ]
    return table_html(pd.DataFrame(rows), title, "" if rows else f"No ceiling is known of {gpu or 'this machine'}.", ["value"])


def figure_links(machine: Machine) -> Picture:
    """The links between GPUs as a matrix: row and column are GPUs, the sign is the link."""
    count = len(machine.gpus)
    if count < 2:
        return message(f"No links to draw: {machine.name} has {plural(count, 'GPU')}.")
    kinds = dict.fromkeys(kind for row in machine.links for kind in row if kind != "self")
    finding = f"All {count} GPUs reach each other over {next(iter(kinds))}" if len(kinds) == 1 else None
    size = 0.3 * count
    with mpl.rc_context(RC | {"axes.grid": False}):
        width, height = max(size + 2.6, 5.2), size + 1.0
        picture = Picture(width, height)
        picture.head(finding)
        ax = picture.add_axes((0.6 / width, 0.12 / height, size / width, size / height))
        for i, row in enumerate(machine.links):
            for j, kind in enumerate(row):
                colour, sign = LINKS.get(kind, LINKS["unknown"])
                ax.add_patch(mpl.patches.Rectangle((j + 0.04, i + 0.04), 0.92, 0.92, facecolor=colour, edgecolor=INK, linewidth=0.4))
                ax.text(j + 0.5, i + 0.5, sign, ha="center", va="center", color="white" if colour != "none" else INK, fontsize=8)
        ax.set_xlim(0, count)
        ax.set_ylim(count, 0)
        ax.set_xticks([i + 0.5 for i in range(count)], [str(i) for i in range(count)])
        ax.set_yticks([i + 0.5 for i in range(count)], [f"GPU {i}" for i in range(count)])
        ax.xaxis.tick_top()
        ax.tick_params(length=0)
        for spine in ax.spines.values():
            spine.set_visible(False)
        for index, kind in enumerate(kinds):
            y = 0.5 + 0.9 * index
            colour, sign = LINKS.get(kind, LINKS["unknown"])
            ax.text(count + 0.4, y, f"{sign}  {kind}", va="center", color=colour if colour != "none" else INK, fontweight="bold")
    picture.caption = f"Links between the GPUs of {machine.name}, as the driver {machine.driver} reports peer access."
    pairs = [(i, j, kind) for i, row in enumerate(machine.links) for j, kind in enumerate(row) if i != j]
    picture.data = pd.DataFrame(pairs, columns=["gpu", "peer", "link"])
    picture.alt = f"A matrix of {count} by {count} GPUs. " + (finding or f"Links: {', '.join(kinds)}") + "."
    return picture
