"""All-reduces alone: points with intervals, each algorithm's formula beside its time, and what gradients of a size would take.

A point that one Record measured has the distribution-free interval of its median sample, within one launch: screening. Several
Records have the interval of `analysis.statistics`, with launches as the units where they differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from multigpu.analysis.limits import ceilings
from multigpu.analysis.statistics import interval, sample
from multigpu.analysis.wording import MODEL_NAMES
from multigpu.collectives import find_algorithm
from multigpu.collectives.algorithms.hierarchical import group_size
from multigpu.collectives.run import ITEM_BYTES
from multigpu.workloads import find_model

POINT = ("machine", "gpu", "device_type", "devices", "execution", "method", "kind", "bytes")
SHORT_BYTES = 2**10
"""A message that takes as long as an empty one, yet has an element for every process: what it takes is latency."""

JOBS = (("nmt", "nmt000"), ("nmt", "nmt004"))
"""Whose gradients are looked up on the curves: documents 000 and 004."""


def points(frame: pd.DataFrame, dtype: str = "fp32") -> pd.DataFrame:
    """A row a point of `collectives_frame` with status ok: POINT, time_s, low_s, high_s, n (Records), launches, keys.

    low_s and high_s: bounds of time_s at 95%.
    """
    rows = []
    usable = frame[(frame["status"] == "ok") & (frame["dtype"] == dtype)]
    # plain dicts: hundreds of groups of one row each take a second as frames
    groups: dict[tuple[object, ...], list[dict[Any, Any]]] = {}
    for row in usable.to_dict("records"):
        groups.setdefault(tuple(row[name] for name in POINT), []).append(row)
    for values, group in groups.items():
        launches = [row["launch_id"] for row in group]
        if len(group) == 1:
            time_s, low, high = (float(group[0][name]) for name in ("time_s", "median_low_s", "median_high_s"))
        else:
            part = sample([row["time_s"] for row in group], launches)
            half = interval([part])
            time_s, low, high = math.exp(part.mean), math.exp(part.mean - half), math.exp(part.mean + half)
        found = {"time_s": time_s, "low_s": low, "high_s": high, "n": len(group), "launches": len(set(launches))}
        rows.append(dict(zip(POINT, values, strict=True)) | found | {"keys": ", ".join(sorted(row["key"] for row in group))})
    table = pd.DataFrame(rows, columns=[*POINT, "time_s", "low_s", "high_s", "n", "launches", "keys"])
    return table.sort_values(list(POINT), kind="stable").reset_index(drop=True)


def at(table: pd.DataFrame, devices: int, execution: str) -> pd.DataFrame:
    """The points of one number of devices and one form of execution."""
    return table[(table["devices"] == devices) & (table["execution"] == execution)]


def find_point(table: pd.DataFrame, method: str, size: int) -> pd.Series | None:
    """The point of a method and size in a table of `at`, or None."""
    rows = table[(table["method"] == method) & (table["bytes"] == size)]
    return None if rows.empty else rows.iloc[0]


def serial_bytes(method: str, size: int, devices: int) -> float:
    """Bytes that must follow each other for an all-reduce of `size` bytes, the links of a process full duplex.

    An algorithm whose processes send all the time takes what the busiest sends. Not so where a whole tensor has to arrive before
    it can go on: a central server first receives, then sends (2N(P-1)); a tree passes N on 2 ceil(log2 P) times; of two levels,
    each step within a group is N; processes beyond a power of two hand N over and wait for N.
    """
    cost = find_algorithm(method).cost(size // 4, 4, devices)
    if method == "central_server":
        return cost.busiest_port_bytes
    if method == "tree":
        return float(cost.latency_terms * size)
    if method == "hierarchical":
        leaders = devices // group_size(devices)
        return 2 * cost.busiest_way_bytes - 2 * size * (leaders - 1) / leaders
    beyond = method == "halving_doubling" and devices & (devices - 1)
    return cost.busiest_way_bytes + (size if beyond else 0)


@dataclass(frozen=True)
class Model:
    """t = latency terms x alpha_s + bytes that follow each other / bytes_per_s, for every algorithm alike.

    alpha_s: fitted, the median over algorithms of the time of SHORT_BYTES over the number of latency terms.
    bytes_per_s: not fitted, what one copy between two of the same devices was measured to carry (`multigpu ceilings`).
    Adding up is left out, as the documents leave it out.
    """

    alpha_s: float
    bytes_per_s: float

    def time_s(self, method: str, size: int, devices: int) -> float:
        """Seconds of one all-reduce of `size` bytes a device."""
        terms = find_algorithm(method).cost(size // 4, 4, devices).latency_terms
        return terms * self.alpha_s + serial_bytes(method, size, devices) / self.bytes_per_s


def model_of(table: pd.DataFrame, bytes_per_s: float | None = None) -> Model | None:
    """The Model of the points of one `at`; None where short messages or the link were not measured."""
    if table.empty:
        return None
    devices, link = int(table["devices"].iloc[0]), ceilings(str(table["gpu"].iloc[0])).get("device_link")
    carried = bytes_per_s or (link.value if link and link.how == "measured" else None)
    short = table[(table["kind"] == "algorithm") & (table["bytes"] == SHORT_BYTES)]
    if short.empty or carried is None:
        return None
    terms = [find_algorithm(name).cost(SHORT_BYTES // 4, 4, devices).latency_terms for name in short["method"]]
    return Model(median(time / count for time, count in zip(short["time_s"], terms, strict=True)), carried)


@dataclass(frozen=True)
class Transfer:
    """What an all-reduce of `size` bytes takes: measured, or in proportion between the nearest sizes that were."""

    size: int
    time_s: float
    low_s: float
    high_s: float
    between: tuple[int, int]

    @property
    def measured(self) -> bool:
        """Whether this very size was measured."""
        return self.between[0] == self.between[1]


def transfer(table: pd.DataFrame, method: str, size: int) -> Transfer | None:
    """The time of `size` bytes by one method, from the points of one `at`; None outside of the sizes measured."""
    line = table[table["method"] == method].sort_values("bytes")
    below, above = line[line["bytes"] <= size], line[line["bytes"] >= size]
    if below.empty or above.empty:
        return None
    a, b = below.iloc[-1], above.iloc[0]
    share = (size - a["bytes"]) / (b["bytes"] - a["bytes"]) if a["bytes"] < b["bytes"] else 0.0
    time_s, low, high = (float(a[name] + share * (b[name] - a[name])) for name in ("time_s", "low_s", "high_s"))
    return Transfer(size, time_s, low, high, (int(a["bytes"]), int(b["bytes"])))


def gradient_bytes(workload: str, model: str) -> int:
    """Bytes of a model's gradients in fp32."""
    return sum(variable.elements for variable in find_model(workload, model).variables) * ITEM_BYTES["fp32"]


def gradient_marks() -> dict[str, int]:
    """The sizes of the gradients of JOBS by the model's name on every page, for figures."""
    return {MODEL_NAMES.get(model, model): gradient_bytes(workload, model) for workload, model in JOBS}


def winners(table: pd.DataFrame) -> list[tuple[int, str | None]]:
    """Of each size, the method whose interval lies below every other's, or None; methods that round on the wire do not compete.

    None too where a method was not measured that wins or ties at a neighbouring size: its rival may be missing.
    """
    rounding = table["method"].str.contains("_[bf]", regex=True)
    groups = [(int(str(size)), group.sort_values("time_s")) for size, group in table[~rounding].groupby("bytes")]
    ahead = [_ahead(order) for _, order in groups]
    found: list[tuple[int, str | None]] = []
    for index, (size, order) in enumerate(groups):
        rivals = {name for near in (index - 1, index + 1) if 0 <= near < len(groups) for name in ahead[near]}
        clear = len(ahead[index]) == 1 and rivals <= set(order["method"])
        found.append((size, str(order["method"].iloc[0]) if clear else None))
    return found


def _ahead(order: pd.DataFrame) -> set[str]:
    """The methods of one size that no other is clearly faster than, in order of time; none where nothing is compared."""
    return set(order.loc[order["low_s"] <= order["high_s"].iloc[0], "method"]) if len(order) > 1 else set()


def stretches(found: Sequence[tuple[int, str | None]]) -> Iterator[tuple[str | None, int, int]]:
    """Neighbouring sizes with one winner, joined: (method, first size, last size)."""
    start = 0
    for index in range(1, len(found) + 1):
        if index == len(found) or found[index][1] != found[start][1]:
            yield found[start][1], found[start][0], found[index - 1][0]
            start = index
