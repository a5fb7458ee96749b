"""CollectiveRecords as a tidy frame: a row each, every column named with its unit (`all_reduce.points` pools repeats)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import special

from multigpu.collectives import algorithms
from multigpu.collectives.record import CollectiveRecord, CollectiveStore

COLUMNS: dict[str, str] = {
    **dict.fromkeys(("key", "machine", "gpu", "status", "reason", "method", "kind", "device_type", "dtype", "execution"), "string"),
    **dict.fromkeys(("attempt", "devices", "bytes", "repeat", "samples", "calls", "warmup_calls"), "int64"),
    **dict.fromkeys(
        ("time_s", "time_low_s", "time_high_s", "median_low_s", "median_high_s", "algorithm_bytes_per_s", "bus_bytes_per_s"), "float64"
    ),
    **dict.fromkeys(("latency_terms", "busiest_link_bytes", "busiest_way_bytes", "busiest_port_bytes", "total_bytes"), "float64"),
    **dict.fromkeys(("flags", "framework_version", "launch_id", "measured_at", "commit"), "string"),
    "clean_tree": "bool",
    "timing_version": "int64",
}
"""A row a Record. time_s is the median sample, time_low_s and time_high_s the fastest and the slowest, median_low_s and
median_high_s the bounds between which the median lies with at least 95% (`median_bounds`); counted bytes are of one call."""


def collectives_frame(records: Iterable[CollectiveRecord] | CollectiveStore | Path | str) -> pd.DataFrame:
    """The frame of these Records, or of those in a folder, one row each.

    Raises:
        ValueError: a file is no CollectiveRecord; the sentence names it.
    """
    found = CollectiveStore(Path(records)) if isinstance(records, Path | str) else records
    rows = [_row(record) for record in found]
    return pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()})


def median_bounds(samples: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The k-th smallest and the k-th largest sample, k as large as the level allows: the median lies between them, whatever the law.

    Each sample is below the median with 1/2, so of n samples fewer than k are with probability P(Binomial(n, 1/2) < k), and fewer
    than k above it with the same. Of 10 samples these are the 2nd and the 9th (97.9%); of fewer than 6 none reach the level: nan.
    """
    ordered, n = sorted(samples), len(samples)
    k = math.ceil(special.bdtrik((1 - level) / 2, n, 0.5))  # the quantile of a binomial law
    return (ordered[k - 1], ordered[n - k]) if k else (math.nan, math.nan)


def _row(record: CollectiveRecord) -> dict[str, Any]:
    run, measured = record.run, record.measurement
    row: dict[str, Any] = {name: getattr(run, name) for name in ("method", "device_type", "dtype", "execution", "devices", "bytes")}
    row |= {name: getattr(record, name) for name in ("key", "attempt", "status", "reason", "repeat", "launch_id", "measured_at", "commit")}
    row |= {
        "clean_tree": record.clean_tree,
        "timing_version": record.timing_version,
        "machine": record.machine.name,
        "gpu": record.machine.gpus[0] if record.machine.gpus else "",
        "kind": "algorithm" if run.method in algorithms() else "library",
        "framework_version": record.versions.get("torch", "none"),
        "calls": run.calls,
        "warmup_calls": run.warmup_calls,
        "samples": len(measured.time_s) if measured else 0,
    }
    if measured:
        row |= {
            "time_s": record.time_s,
            "time_low_s": min(measured.time_s),
            "time_high_s": max(measured.time_s),
            **dict(zip(("median_low_s", "median_high_s"), median_bounds(measured.time_s), strict=True)),
            "algorithm_bytes_per_s": record.algorithm_bandwidth,
            "bus_bytes_per_s": record.bus_bandwidth,
            "flags": ", ".join(measured.flags),
        }
        if measured.counted:
            counted = measured.counted
            row |= {name: getattr(counted, name) for name in COLUMNS if hasattr(counted, name)}
    return row
