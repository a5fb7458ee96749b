"""What the server holds and exchanges against the number of workers, in vectors of the parameters' size."""

from __future__ import annotations

from collections.abc import Iterable

import matplotlib as mpl
import pandas as pd

from multigpu.analysis.figure_synchrony import counts_axis, legend, protocol_look
from multigpu.analysis.layout import grid_of_axes, name_panel
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import RC
from multigpu.synchrony.grid_training import MEMORY_PROBLEM
from multigpu.synchrony.protocol import PROTOCOLS
from multigpu.synchrony.record import SynchronyRecord

NOTHING = "No Record to draw: python -m multigpu synchrony --grid memory makes them."
COLUMNS = ["key", "protocol", "workers", "gradients_per_update", "held", "exchanged", "mib_held"]


def memory_frame(records: Iterable[SynchronyRecord], parameters: int = 25_600_000) -> pd.DataFrame:
    """A row a run of the problem that is there for it.

    held: vectors in the server's memory at most: versions of the parameters that batches under way are computed on, and the K gradients of
    one update. exchanged: vectors received and sent for each gradient applied. mib_held: held, for a model of so many float32 parameters.
    """
    rows = []
    for record in records:
        e, result = record.experiment, record.result
        if e.problem != MEMORY_PROBLEM or result is None or e.clock != "virtual":
            continue
        held = result.accounts.versions_held + e.gradients_per_update
        rows.append(
            {
                "key": record.key,
                "protocol": e.protocol,
                "workers": e.workers,
                "gradients_per_update": e.gradients_per_update,
                "held": held,
                "exchanged": (result.accounts.received + result.accounts.sent) / result.accounts.applied,
                "mib_held": held * parameters * 4 / 2**20,
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def figure_memory(records: Iterable[SynchronyRecord]) -> Picture:
    """Vectors held, and exchanged for each gradient applied, against P."""
    table = memory_frame(records)
    if table.empty:
        return message(NOTHING)
    names = ["Vectors in the server's memory", "Vectors exchanged a gradient applied"]
    most = int(table["workers"].max())
    last = table[table["workers"] == most].set_index("protocol")
    finding = None
    if {"sync", "async"} <= set(last.index):
        finding = (
            f"With {most} workers the server holds up to {last['held'].max()} vectors of parameters, "
            f"{last['mib_held'].max() / 1024:.1f} GiB for ResNet-50's 25.6 million in float32"
        )
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(2, finding, 3.2, 2.2, 2, legend=True, names=names)
        for ax, name, column in zip(axes, names, ("held", "exchanged"), strict=True):
            name_panel(ax, name)
            for protocol in PROTOCOLS:
                line, look = table[table["protocol"] == protocol].sort_values("workers"), protocol_look(protocol)
                ax.plot(line["workers"], line[column], color=look.colour, marker=look.marker, clip_on=False)
            counts_axis(ax, sorted(set(table["workers"])))
            ax.set_xlabel("workers P")
            ax.set_ylim(0, None)
        axes[0].set_ylabel("vectors of parameters")
        legend(picture, list(PROTOCOLS))
    picture.caption = (
        "Exponential times, K = P/2 where there is a K, one run a point. Held: the versions that batches under way are computed on, which "
        "rules by distance need, and the gradients that wait for their update (a server that adds them up as they come holds one sum). "
        "Exchanged: gradients received and parameters sent, those for cancelled batches too."
    )
    picture.data = table
    picture.alt = f"Vectors held and exchanged by the server against workers for six protocols. {finding or ''}"
    return picture
