"""CollectiveRecords as a tidy frame, a row each; points of all-reduces with intervals."""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from multigpu.analysis.fields import columns
from multigpu.analysis.frame import identity, typed_frame
from multigpu.analysis.statistics import half_width, log_samples
from multigpu.collectives import algorithms
from multigpu.records.collective import CollectiveRecord, CollectiveStore, bus_factor
from multigpu.records.published import published
from multigpu.spec.collective import CollectiveRun

POINT = ("machine", "gpu", "device_type", "devices", "execution", "method", "kind", "bytes")
MEASURED = tuple(
    f"{name}{end}" for name in ("time_s", "bus_bytes_per_s") for end in ("", "_low", "_high")
)
"""What `points` tells of a point."""
SHORT_BYTES = 2**10
"""A message that takes as long as an empty one, yet has an element for every process: latency."""

COLUMNS = columns("collectives")
"""A row a Record."""
OF_RUN = [name for name in COLUMNS if name in CollectiveRun.model_fields]
COUNTED = (
    "latency_terms",
    "busiest_link_bytes",
    "busiest_way_bytes",
    "busiest_port_bytes",
    "total_bytes",
)


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
    carried = bus_factor(run.devices) * run.bytes
    rate = re.match(r"([\d.]+) Mbit/s", machine.network)
    row = run.values_of(*OF_RUN) | identity(record)
    row |= {
        "time_s": record.time_s,
        "kind": "algorithm" if run.method in algorithms() else "library",
        "framework_version": record.versions.get("torch", "none"),
        "samples": len(measured.time_s) if measured else 0,
        "bus_bytes_per_s": carried / record.time_s if record.time_s else None,
        "hosts": machine.hosts,
        "per_host": machine.processes_per_host,
        "network": machine.network,
        "rate_bytes_per_s": float(rate[1]) * 1e6 / 8 if rate else None,
    }
    if measured:
        # processes of one host read the same interface
        each = (measured.interface_bytes or [])[:: machine.processes_per_host or 1]
        sent = [max(way) for way in zip(*each, strict=True)] or [None] * 2
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
    middle = np.exp(pooled["log_mean"])
    half = np.exp(half_width(pooled["log_variance"], pooled["log_freedom"]))
    for name, several in zip(of_one, (middle, middle / half, middle * half), strict=True):
        table[name] = table[name].mask(table["n"] > 1, several)
    carried = table["bytes"] * table["devices"].map(lambda count: bus_factor(count) or 1.0)
    for end, other in (("", ""), ("_low", "_high"), ("_high", "_low")):
        table[f"bus_bytes_per_s{end}"] = carried / table[f"time_s{other}"]
    return table[[*by, *MEASURED, "n", "launches", "samples", "keys"]]
