"""All-reduces between hosts: their frame, what a link allows, and points with their repeats beside both."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from multigpu.analysis import all_reduce
from multigpu.analysis.collectives import collectives_frame
from multigpu.collectives import algorithms
from multigpu.collectives.record import CollectiveRecord, CollectiveStore

EXTRA = ("hosts", "per_host", "network", "rate_bytes_per_s", "delay_us", "compute_ms", "host_sent_bytes", "host_received_bytes")
"""Columns beside those of `collectives_frame`. The last two: of the busiest host's interface in one call, headers included."""

WIRE_SHARE = 1448 / 1514
"""Of what a link of 1,500-byte packets carries, what is left for data: Ethernet, IP and TCP headers with time stamps take 66 of 1,514."""


def hosts_frame(records: Iterable[CollectiveRecord] | CollectiveStore | Path | str) -> pd.DataFrame:
    """`collectives_frame` with the columns of EXTRA, one row a Record; only of several hosts' machines.

    Raises:
        ValueError: a file is no CollectiveRecord; the sentence names it.
    """
    found = list(CollectiveStore(Path(records)) if isinstance(records, Path | str) else records)
    found = [record for record in found if record.machine.processes_per_host]
    frame = collectives_frame(found)
    rows = [_extra(record) for record in found]
    for name in EXTRA:
        frame[name] = [row[name] for row in rows]
    return frame


def _extra(record: CollectiveRecord) -> dict[str, Any]:
    machine, run = record.machine, record.run
    rate = re.match(r"([\d.]+) Mbit/s", machine.network)
    carried = (record.measurement.interface_bytes if record.measurement else None) or []
    # processes of one host read the same interface
    hosts = carried[:: machine.processes_per_host or 1]
    return {
        "hosts": machine.hosts,
        "per_host": machine.processes_per_host,
        "network": machine.network,
        "rate_bytes_per_s": float(rate[1]) * 1e6 / 8 if rate else float("nan"),
        "delay_us": run.delay_us,
        "compute_ms": run.compute_ms,
        "host_sent_bytes": max((sent for sent, _ in hosts), default=None),
        "host_received_bytes": max((received for _, received in hosts), default=None),
    }


def link_time_s(method: str, size: int, devices: int, rate_bytes_per_s: float) -> float:
    """What the bytes of one all-reduce that must follow each other take on a full-duplex link of this rate, one process a host.

    A library's is taken for the least possible, 2N(P-1)/P.
    """
    count = all_reduce.serial_bytes(method if method in algorithms() else "ring", size, devices)
    return count / (rate_bytes_per_s * WIRE_SHARE)


POINT = (*all_reduce.POINT, "hosts", "per_host", "rate_bytes_per_s", "delay_us", "compute_ms")


def host_points(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a point of `hosts_frame`: `all_reduce.points` by POINT, with three columns more.

    link_s: what its bytes that follow each other take on a link, of one process a host (NaN: no formula). latency_terms: messages that
    follow each other (NaN: a library's). sent_bytes: of the busiest host's interface in one call, the larger of both ways.
    """
    table = all_reduce.points(frame, by=POINT)
    measured = frame.drop_duplicates("key").set_index("key")
    first = [keys.split(", ")[0] for keys in table["keys"]]
    sent = measured[["host_sent_bytes", "host_received_bytes"]].astype("float64").max(axis=1)
    table["sent_bytes"] = [sent[key] for key in first]
    rows = table.to_dict("records")
    known = algorithms()
    table["latency_terms"] = [
        known[row["method"]].cost(row["bytes"] // 4, 4, row["devices"]).latency_terms if row["method"] in known else math.nan
        for row in rows
    ]
    one_a_host = [row["per_host"] == 1 and row["devices"] > 1 for row in rows]
    table["link_s"] = [
        link_time_s(row["method"], row["bytes"], row["devices"], row["rate_bytes_per_s"]) if alone else math.nan
        for row, alone in zip(rows, one_a_host, strict=True)
    ]
    return table
