"""What Records of all-reduces between hosts say: cost against the number of hosts, interfaces against formulas, document 004's step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from multigpu.analysis.all_reduce import serial_bytes
from multigpu.analysis.collectives import collectives_frame
from multigpu.analysis.statistics import interval as half_width
from multigpu.analysis.statistics import sample
from multigpu.collectives import algorithms
from multigpu.collectives.record import CollectiveRecord, CollectiveStore
from multigpu.hosts.grid import BYTES, COMPUTE_MS, DELAY_US, LATENCY_BYTES, SLOW_BYTES
from multigpu.published import load_published

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


def latest(frame: pd.DataFrame) -> pd.DataFrame:
    """The latest attempt of every Record that is ok."""
    last = frame.sort_values("attempt").drop_duplicates("key", keep="last") if len(frame) else frame
    return last[last["status"] == "ok"]


def link_time_s(method: str, size: int, devices: int, rate_bytes_per_s: float) -> float:
    """What the bytes of one all-reduce that must follow each other take on a full-duplex link of this rate, one process a host.

    A library's is taken for the least possible, 2N(P-1)/P.
    """
    count = serial_bytes(method if method in algorithms() else "ring", size, devices)
    return count / (rate_bytes_per_s * WIRE_SHARE)


def growth(frame: pd.DataFrame) -> pd.DataFrame:
    """All-reduces of 1 MiB by one process a host, nothing slept: a row a method and number of hosts, in order.

    Columns: method, devices, bytes, time_s, low_s, high_s (the median sample's bounds at 95%), link_s (the formula's), ratio (time over
    the formula's), sent_bytes (of the busiest host's interface, the larger of both ways), way_bytes (the same by formula),
    rate_bytes_per_s (of a link), key.
    """
    ok = latest(frame)
    ok = ok[(ok["per_host"] == 1) & (ok["delay_us"] == 0) & (ok["compute_ms"] == 0)]
    ok = ok[ok["bytes"] == BYTES]
    rows = [_growth_row(row) for _, row in ok.iterrows()]
    columns = ["method", "devices", "bytes", "time_s", "low_s", "high_s", "link_s", "ratio", "sent_bytes", "way_bytes"]
    columns += ["rate_bytes_per_s", "machine", "key"]
    return pd.DataFrame(rows, columns=columns).sort_values(["method", "devices"], kind="stable").reset_index(drop=True)


def _growth_row(row: Any) -> dict[str, Any]:
    limit = link_time_s(row["method"], int(row["bytes"]), int(row["devices"]), row["rate_bytes_per_s"])
    busiest = max(row["host_sent_bytes"], row["host_received_bytes"])
    return {
        **{name: row[name] for name in ("method", "devices", "bytes", "time_s", "rate_bytes_per_s", "machine", "key")},
        "low_s": row["median_low_s"],
        "high_s": row["median_high_s"],
        "link_s": limit,
        "ratio": row["time_s"] / limit,
        "sent_bytes": busiest,
        "way_bytes": row["busiest_way_bytes"],
    }


def repeated_growth(frame: pd.DataFrame) -> pd.DataFrame:
    """Of the all-reduces that were repeated, larger and over slower links (C25 is decided by them): a row a method.

    Columns: method, few, most (hosts), bytes, rate_bytes_per_s, n (repeats of the end that has fewer), launches (likewise), ratio (time on
    most over that on few, of geometric means), low, high (95%, by launches where they differ), formula (the same of the formula).
    """
    ok = latest(frame)
    ok = ok[(ok["per_host"] == 1) & (ok["delay_us"] == 0) & (ok["compute_ms"] == 0) & (ok["bytes"] == SLOW_BYTES)]
    rows = []
    for method, own in ok.groupby("method", sort=True):
        few, most = int(own["devices"].min()), int(own["devices"].max())
        ends = [own[own["devices"] == count] for count in (few, most)]
        if few == most or min(map(len, ends)) < 2:
            continue
        base, end = (sample(list(rows_of["time_s"]), list(rows_of["launch_id"])) for rows_of in ends)
        ratio, half = math.exp(end.mean - base.mean), half_width([base, end])
        rate = float(own["rate_bytes_per_s"].iloc[0])
        least, limit = (link_time_s(str(method), SLOW_BYTES, count, rate) for count in (few, most))
        rows.append(
            {
                **{"method": method, "few": few, "most": most, "bytes": SLOW_BYTES, "rate_bytes_per_s": rate},
                **{"n": min(base.n, end.n), "launches": min(base.launches, end.launches), "ratio": ratio},
                **{"low": ratio * math.exp(-half), "high": ratio * math.exp(half), "formula": limit / least},
            }
        )
    columns = ["method", "few", "most", "bytes", "rate_bytes_per_s", "n", "launches", "ratio", "low", "high", "formula"]
    return pd.DataFrame(rows, columns=columns)


def latency(frame: pd.DataFrame) -> pd.DataFrame:
    """Small delayed messages: a row a method and number of hosts.

    Columns: method, devices, time_s, low_s, high_s, terms (messages in a row), formula_s (their delays), key.
    """
    ok = latest(frame)
    ok = ok[(ok["bytes"] == LATENCY_BYTES) & (ok["delay_us"] == DELAY_US) & (ok["compute_ms"] == 0)]
    rows = []
    for _, row in ok.iterrows():
        terms = algorithms()[row["method"]].cost(int(row["bytes"]) // 4, 4, int(row["devices"])).latency_terms
        rows.append(
            {
                **{name: row[name] for name in ("method", "devices", "time_s", "key")},
                "low_s": row["median_low_s"],
                "high_s": row["median_high_s"],
                "terms": terms,
                "formula_s": terms * row["delay_us"] * 1e-6,
            }
        )
    columns = ["method", "devices", "time_s", "low_s", "high_s", "terms", "formula_s", "key"]
    return pd.DataFrame(rows, columns=columns).sort_values(["method", "devices"], kind="stable").reset_index(drop=True)


def document_steps(frame: pd.DataFrame, per_host: int) -> pd.DataFrame:
    """Document 004's step with compute slept, for so many processes a host: a row a method and number of processes.

    Columns: method, devices, hosts, time_s, low_s, high_s, communication_s (time_s less what was slept), document_s (the document's
    step, nan where it has none), speedup (weak scaling against one process), efficiency, key.
    """
    ok = latest(frame)
    ok = ok[ok["compute_ms"] == COMPUTE_MS]
    one = ok[ok["devices"] == 1]
    chosen = ok[(ok["per_host"] == per_host) & (ok["devices"] > 1)]
    document = load_published("004_step_times").set_index("gpus")["step_time_ms"]
    base = float(one["time_s"].median()) if len(one) else COMPUTE_MS * 1e-3
    rows = []
    for _, row in pd.concat([one, chosen]).iterrows():
        devices = int(row["devices"])
        rows.append(
            {
                **{name: row[name] for name in ("method", "devices", "hosts", "time_s", "key")},
                "low_s": row["median_low_s"],
                "high_s": row["median_high_s"],
                "communication_s": row["time_s"] - row["compute_ms"] * 1e-3,
                "document_s": document.get(devices, float("nan")) * 1e-3,
                "speedup": devices * base / row["time_s"],
                "efficiency": base / row["time_s"],
            }
        )
    columns = ["method", "devices", "hosts", "time_s", "low_s", "high_s", "communication_s", "document_s", "speedup", "efficiency", "key"]
    return pd.DataFrame(rows, columns=columns).sort_values(["method", "devices"], kind="stable").reset_index(drop=True)
