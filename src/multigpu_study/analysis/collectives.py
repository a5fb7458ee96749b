"""All-reduces for the report: which method wins at which size, and what a link between hosts
allows.
"""

import math
from pathlib import Path

import numpy as np
import pandas as pd

from multigpu.analysis.collectives import POINT, points
from multigpu.analysis.estimate import Estimate
from multigpu.collectives import algorithms
from multigpu.records.collective import CollectiveStore


def sample_ends(folder: Path) -> pd.DataFrame:
    """Return of each measured all-reduce of a folder its shortest and longest sample, s, as the
    bounds of a column `median`: keys, median_low, median_high.
    """
    rows = [
        (record.key, min(record.measurement.time_s), max(record.measurement.time_s))
        for record in CollectiveStore(folder)
        if record.measurement
    ]
    return pd.DataFrame(rows, columns=["keys", "median_low", "median_high"])


def transfer(table: pd.DataFrame, method: str, size: int) -> Estimate | None:
    """The time (s) of `size` bytes by one method: measured, or in proportion between the nearest
    sizes that were; None outside of these.
    """
    line = table[table["method"] == method].sort_values("bytes")
    if line.empty or not line["bytes"].iloc[0] <= size <= line["bytes"].iloc[-1]:
        return None
    time_s, low, high = (
        float(np.interp(size, line["bytes"], line[name]))
        for name in ("time_s", "time_s_low", "time_s_high")
    )
    return Estimate(time_s, low, high)


def winners(table: pd.DataFrame) -> list[tuple[int, str | None]]:
    """Of each size, the method whose interval lies below every other's, or None; methods that round
    on the wire do not compete. None too where a method was not measured that wins or ties at a
    neighbouring size: its rival may be missing.
    """
    exact = table[~table["method"].str.contains("_[bf]", regex=True)].sort_values("time_s")
    orders = {int(str(size)): order for size, order in exact.groupby("bytes")}
    # of each size, the methods that no other is clearly faster than; none where nothing is compared
    ahead = [
        set(one.loc[one["time_s_low"] <= one["time_s_high"].iloc[0], "method"])
        if len(one) > 1
        else set()
        for one in orders.values()
    ]
    found: list[tuple[int, str | None]] = []
    for index, (size, order) in enumerate(orders.items()):
        rivals = {
            name
            for near in (index - 1, index + 1)
            if 0 <= near < len(orders)
            for name in ahead[near]
        }
        clear = len(ahead[index]) == 1 and rivals <= set(order["method"])
        found.append((size, str(order["method"].iloc[0]) if clear else None))
    return found


WIRE_SHARE = 1448 / 1514
"""Of a link of 1,500-byte packets, what is left for data: headers take 66 of 1,514 bytes."""

HOST_POINT = (*POINT, "hosts", "per_host", "rate_bytes_per_s", "delay_us", "compute_ms")


def link_time_s(method: str, size: int, devices: int, rate_bytes_per_s: float) -> float:
    """Return the seconds that an all-reduce's dependent bytes take on a full-duplex link, one
    process a host; a library's: 2N(P-1)/P.
    """
    count = algorithms().get(method, algorithms()["ring"]).serial_bytes(size, devices)
    return count / (rate_bytes_per_s * WIRE_SHARE)


def host_points(frame: pd.DataFrame) -> pd.DataFrame:
    """`points` between hosts by HOST_POINT, with link_s: what bytes that follow each other take on
    a link, of one process a host (NaN: no formula); latency_terms: messages that do (NaN: a
        library's); sent_bytes: of the busiest host's interface in one call and way.
    """
    table, known = points(frame, by=HOST_POINT), algorithms()
    sent = frame.set_index("key")[["host_sent_bytes", "host_received_bytes"]].max(axis=1)
    methods = table[["method", "bytes", "devices"]].itertuples(index=False)
    terms = [
        known[name].cost(size // 4, 4, count).latency_terms if name in known else math.nan
        for name, size, count in methods
    ]
    linked = table.loc[
        table["per_host"].eq(1) & table["devices"].gt(1),
        ["method", "bytes", "devices", "rate_bytes_per_s"],
    ]
    links = pd.Series(
        [link_time_s(*row) for row in linked.itertuples(index=False)], linked.index, dtype="float64"
    )
    return table.assign(
        sent_bytes=table["keys"].str.split(", ").str[0].map(sent), latency_terms=terms, link_s=links
    )
