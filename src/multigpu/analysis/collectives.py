"""CollectiveRecords as a tidy frame, a row each; points of all-reduces alone and between hosts with
intervals.
"""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from multigpu.analysis.estimate import Estimate
from multigpu.analysis.frame import identity, typed_frame
from multigpu.analysis.statistics import half_width, log_samples
from multigpu.collectives import algorithms
from multigpu.records.collective import CollectiveRecord, CollectiveStore, bus_factor
from multigpu.records.published import published

POINT = ("machine", "gpu", "device_type", "devices", "execution", "method", "kind", "bytes")
MEASURED = tuple(
    f"{name}{end}" for name in ("time_s", "bus_bytes_per_s") for end in ("", "_low", "_high")
)
"""What `points` tells of a point."""
SHORT_BYTES = 2**10
"""A message that takes as long as an empty one, yet has an element for every process: what it takes
is latency.
"""


OF_RUN = (
    "method",
    "device_type",
    "dtype",
    "execution",
    "devices",
    "bytes",
    "calls",
    "warmup_calls",
    "delay_us",
    "compute_ms",
)
COUNTED = (
    "latency_terms",
    "busiest_link_bytes",
    "busiest_way_bytes",
    "busiest_port_bytes",
    "total_bytes",
)
COLUMNS: dict[str, str] = {
    **dict.fromkeys(
        (
            "key",
            "machine",
            "gpu",
            "status",
            "reason",
            "method",
            "kind",
            "device_type",
            "dtype",
            "execution",
        ),
        "string",
    ),
    **dict.fromkeys(
        ("flags", "framework_version", "launch_id", "measured_at", "commit", "network"), "string"
    ),
    **dict.fromkeys(
        (
            "attempt",
            "devices",
            "bytes",
            "repeat",
            "samples",
            "calls",
            "warmup_calls",
            "timing_version",
            "hosts",
        ),
        "int64",
    ),
    **{"per_host": "Int64", "clean_tree": "bool"},
    **dict.fromkeys(
        ("time_s", "median_low_s", "median_high_s", "bus_bytes_per_s", *COUNTED), "float64"
    ),
    **dict.fromkeys(
        ("rate_bytes_per_s", "delay_us", "compute_ms", "host_sent_bytes", "host_received_bytes"),
        "float64",
    ),
}
"""A row a Record. time_s is the median sample, median_low_s and median_high_s the bounds between
which the median lies with at least 95% (`median_bounds`); counted bytes are of one call. per_host:
missing of one machine alone. host_sent_bytes, host_received_bytes: of the busiest host's interface
in one call, headers included.
"""


def collectives_frame(
    records: Iterable[CollectiveRecord] | CollectiveStore | Path | str,
) -> pd.DataFrame:
    """The frame of these Records, or of those in a folder, one row each, with those that were
    published with the package. ValueError: a file is no CollectiveRecord.
    """
    if not isinstance(records, Path | str):
        return typed_frame([_row(record) for record in records], COLUMNS)
    folder = Path(records)
    own = [_row(record) for record in CollectiveStore(folder)]
    return typed_frame([*own, *published(folder.name, folder)], COLUMNS)


def median_bounds(samples: Sequence[float]) -> tuple[float, float]:
    """The k-th smallest and the k-th largest sample, k as large as 95% allow: the median lies
    between them, whatever the law. Of n samples fewer than k lie below the median, or above it,
    with P(Binomial(n, 1/2) < k) each. Of 10 these are the 2nd and the 9th (97.9%); of fewer than 6
    none reach 95%: nan.
    """
    ordered, n = sorted(samples), len(samples)
    k = math.ceil(special.bdtrik(0.025, n, 0.5))  # the quantile of a binomial law
    return (ordered[k - 1], ordered[n - k]) if k else (math.nan, math.nan)


def _row(record: CollectiveRecord) -> dict[str, Any]:
    run, measured, machine = record.run, record.measurement, record.machine
    rate = re.match(r"([\d.]+) Mbit/s", machine.network)
    row = {name: getattr(run, name) for name in OF_RUN} | identity(record)
    row |= {
        "time_s": record.time_s,
        "kind": "algorithm" if run.method in algorithms() else "library",
        "framework_version": record.versions.get("torch", "none"),
        "samples": len(measured.time_s) if measured else 0,
        "bus_bytes_per_s": record.bus_bandwidth,
        **{
            "hosts": machine.hosts,
            "per_host": machine.processes_per_host,
            "network": machine.network,
        },
        "rate_bytes_per_s": float(rate[1]) * 1e6 / 8 if rate else None,
    }
    if measured:
        # processes of one host read the same interface
        carried = (measured.interface_bytes or [])[:: machine.processes_per_host or 1]
        sent = [max(way) for way in zip(*carried, strict=True)] or [None] * 2
        row |= dict(zip(("host_sent_bytes", "host_received_bytes"), sent, strict=True))
        row |= dict(
            zip(("median_low_s", "median_high_s"), median_bounds(measured.time_s), strict=True)
        )
        row |= {"flags": ", ".join(measured.flags)} | {
            name: getattr(measured.counted, name, None) for name in COUNTED
        }
    return row


def points(frame: pd.DataFrame, by: Sequence[str] = POINT) -> pd.DataFrame:
    """A row a point of `collectives_frame` in fp32 with status ok, in order of `by`: time_s (one
    call) and bus_bytes_per_s (2(P-1)/P of the message over it; all of it where nothing travels)
    with _low and _high (95%); n (Records), launches, samples, keys. One Record has the interval of
    its samples' median, which says nothing of other launches; several have that of
    `analysis.statistics`.
    """
    usable = (
        frame[frame["status"].eq("ok") & frame["dtype"].eq("fp32")]
        .sort_values("key")
        .reset_index(drop=True)
    )
    each = usable.groupby(list(by), dropna=False)
    told = {
        "n": ("time_s", "size"),
        "launches": ("launch_id", "nunique"),
        "samples": ("samples", "sum"),
        "keys": ("key", ", ".join),
    }
    of_one = {
        "time_s": ("time_s", "first"),
        "time_s_low": ("median_low_s", "first"),
        "time_s_high": ("median_high_s", "first"),
    }
    table = each.agg(**told, **of_one).reset_index()
    pooled = log_samples(usable["time_s"], each.ngroup(), usable["launch_id"])
    middle, half = (
        np.exp(pooled["log_mean"]),
        np.exp(half_width(pooled["log_variance"], pooled["log_freedom"])),
    )
    for name, several in zip(of_one, (middle, middle / half, middle * half), strict=True):
        table[name] = table[name].mask(table["n"] > 1, several)
    carried = table["bytes"] * table["devices"].map(lambda count: bus_factor(count) or 1.0)
    for end, other in (("", ""), ("_low", "_high"), ("_high", "_low")):
        table[f"bus_bytes_per_s{end}"] = carried / table[f"time_s{other}"]
    return table[[*by, *MEASURED, "n", "launches", "samples", "keys"]]


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
"""Of what a link of 1,500-byte packets carries, what is left for data: Ethernet, IP and TCP headers
with time stamps take 66 of 1,514.
"""

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
