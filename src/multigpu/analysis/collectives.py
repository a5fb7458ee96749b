"""CollectiveRecords as a tidy frame: a row each, every column named with its unit (`all_reduce.points` pools repeats)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import special

from multigpu.analysis.frame import identity, typed_frame
from multigpu.collectives import algorithms
from multigpu.collectives.record import CollectiveRecord, CollectiveStore

OF_RUN = ("method", "device_type", "dtype", "execution", "devices", "bytes", "calls", "warmup_calls", "delay_us", "compute_ms")
COUNTED = ("latency_terms", "busiest_link_bytes", "busiest_way_bytes", "busiest_port_bytes", "total_bytes")
COLUMNS: dict[str, str] = {
    **dict.fromkeys(("key", "machine", "gpu", "status", "reason", "method", "kind", "device_type", "dtype", "execution"), "string"),
    **dict.fromkeys(("flags", "framework_version", "launch_id", "measured_at", "commit", "network"), "string"),
    **dict.fromkeys(("attempt", "devices", "bytes", "repeat", "samples", "calls", "warmup_calls", "timing_version", "hosts"), "int64"),
    **{"per_host": "Int64", "clean_tree": "bool"},
    **dict.fromkeys(("time_s", "median_low_s", "median_high_s", "bus_bytes_per_s", *COUNTED), "float64"),
    **dict.fromkeys(("rate_bytes_per_s", "delay_us", "compute_ms", "host_sent_bytes", "host_received_bytes"), "float64"),
}
"""A row a Record. time_s is the median sample, median_low_s and median_high_s the bounds between which the median lies with at least 95%
(`median_bounds`); counted bytes are of one call. per_host: missing of one machine alone. host_sent_bytes, host_received_bytes: of the
busiest host's interface in one call, headers included."""


def collectives_frame(records: Iterable[CollectiveRecord] | CollectiveStore | Path | str) -> pd.DataFrame:
    """The frame of these Records, or of those in a folder, one row each.

    Raises:
        ValueError: a file is no CollectiveRecord; the sentence names it.
    """
    found = CollectiveStore(Path(records)) if isinstance(records, Path | str) else records
    return typed_frame([_row(record) for record in found], COLUMNS)


def median_bounds(samples: Sequence[float]) -> tuple[float, float]:
    """The k-th smallest and the k-th largest sample, k as large as 95% allow: the median lies between them, whatever the law.

    Each sample is below the median with 1/2, so of n samples fewer than k are with probability P(Binomial(n, 1/2) < k), and fewer
    than k above it with the same. Of 10 samples these are the 2nd and the 9th (97.9%); of fewer than 6 none reach 95%: nan.
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
        "hosts": machine.hosts,
        "per_host": machine.processes_per_host,
        "network": machine.network,
        "rate_bytes_per_s": float(rate[1]) * 1e6 / 8 if rate else None,
    }
    if measured:
        carried = (measured.interface_bytes or [])[:: machine.processes_per_host or 1]  # processes of one host read the same interface
        sent = [max(way) for way in zip(*carried, strict=True)] or [None] * 2
        row |= dict(zip(("host_sent_bytes", "host_received_bytes"), sent, strict=True))
        row |= dict(zip(("median_low_s", "median_high_s"), median_bounds(measured.time_s), strict=True))
        row |= {"flags": ", ".join(measured.flags)} | {name: getattr(measured.counted, name, None) for name in COUNTED}
    return row
