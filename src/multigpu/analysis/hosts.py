"""All-reduces between hosts: their frame, what a link allows, and points with their repeats beside both."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from multigpu.analysis import all_reduce
from multigpu.analysis.collectives import collectives_frame
from multigpu.collectives import algorithms
from multigpu.collectives.record import CollectiveRecord, CollectiveStore

WIRE_SHARE = 1448 / 1514
"""Of what a link of 1,500-byte packets carries, what is left for data: Ethernet, IP and TCP headers with time stamps take 66 of 1,514."""

POINT = (*all_reduce.POINT, "hosts", "per_host", "rate_bytes_per_s", "delay_us", "compute_ms")


def hosts_frame(records: Iterable[CollectiveRecord] | CollectiveStore | Path | str) -> pd.DataFrame:
    """The rows of `collectives_frame` that are of several hosts' machines.

    Raises:
        ValueError: a file is no CollectiveRecord; the sentence names it.
    """
    frame = collectives_frame(records)
    return frame[frame["per_host"].notna()].reset_index(drop=True)


def link_time_s(method: str, size: int, devices: int, rate_bytes_per_s: float) -> float:
    """What the bytes of one all-reduce that must follow each other take on a full-duplex link of this rate, one process a host.

    A library's is taken for the least possible, 2N(P-1)/P.
    """
    count = all_reduce.serial_bytes(method if method in algorithms() else "ring", size, devices)
    return count / (rate_bytes_per_s * WIRE_SHARE)


def host_points(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a point of `hosts_frame`: `all_reduce.points` by POINT, with three columns more.

    link_s: what its bytes that follow each other take on a link, of one process a host (NaN: no formula). latency_terms: messages that
    follow each other (NaN: a library's). sent_bytes: of the busiest host's interface in one call, the larger of both ways.
    """
    table, known = all_reduce.points(frame, by=POINT), algorithms()
    sent = frame.set_index("key")[["host_sent_bytes", "host_received_bytes"]].max(axis=1)
    rows = table.to_dict("records")
    terms = [
        known[row["method"]].cost(row["bytes"] // 4, 4, row["devices"]).latency_terms if row["method"] in known else math.nan
        for row in rows
    ]
    links = [
        link_time_s(row["method"], row["bytes"], row["devices"], row["rate_bytes_per_s"])
        if row["per_host"] == 1 and row["devices"] > 1
        else math.nan
        for row in rows
    ]
    return table.assign(sent_bytes=table["keys"].str.split(", ").str[0].map(sent), latency_terms=terms, link_s=links)
