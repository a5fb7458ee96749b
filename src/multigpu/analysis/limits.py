"""Bound a rate by what a machine cannot exceed: ceilings with their source, and the units a second
they allow.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from multigpu import paths
from multigpu.machine.ceilings import Ceilings, read_ceilings
from multigpu.placements.traffic import KINDS
from multigpu.records.published import published
from multigpu.spec.model import Model
from multigpu.workloads import find_model

TRAINING_PASSES = 3
"""A training step costs three forward passes: one, gradients of activations, of variables."""

FAST_CONVOLUTIONS = ("fp32", "fp64")
"""Where cuDNN may compute convolutions by Winograd's algorithm or Fourier transforms: VGG-16 in
fp32 and NCHW trained 657 images/s on an H200, 1.2 times what direct convolutions could. Tensor
cores multiply directly: no Record in 16 bits or TF32 comes near its bound.
"""


@dataclass(frozen=True)
class Ceiling:
    """One limit of one device: `value` in `unit` (FLOP/s or B/s), how it is known (measured,
    datasheet), and by whom and when.
    """

    quantity: str
    value: float
    unit: str
    how: str
    source: str
    date: str


_SHEET = ("datasheet", "NVIDIA H200 Tensor Core GPU datasheet (SXM, without sparsity)", "2024")

CEILINGS: dict[str, tuple[Ceiling, ...]] = {
    "H200": (
        Ceiling("bf16", 989e12, "FLOP/s", *_SHEET),
        Ceiling("tf32", 494e12, "FLOP/s", *_SHEET),
        Ceiling("fp32", 67e12, "FLOP/s", *_SHEET),
        Ceiling("memory", 4.8e12, "B/s", *_SHEET),
        Ceiling("device_link", 450e9, "B/s", *_SHEET),
        Ceiling("host_link", 64e9, "B/s", "datasheet", "PCIe 5.0 x16, one way", "2019"),
    )
}
"""By a part of the device's name. Links are one way; `memory`: a copy's bytes read and written."""


def model_of(row: Any) -> Model:
    """Describe a row's model, over sequences of the row's length."""
    length = row["sequence_length"]
    return find_model(row["workload"], row["model"]).at(None if pd.isna(length) else int(length))


PEAKS = {"H100 80GB HBM3": 989e12, "H200": 989e12}
"""FLOP/s in bf16 by data sheets, without sparsity, by a part of the device's name: what MFU is a
share of, however fast the device was measured to be.
"""


def peak_of(gpu: str, precision: str) -> float:
    """Return the peak that MFU is a share of, FLOP/s; NaN: none is known of this device."""
    if precision not in ("bf16", "bf16_params"):
        return math.nan
    return next((peak for part, peak in PEAKS.items() if part in gpu), math.nan)


def mfu_of(row: Any, rate: str = "rate") -> float:
    """Return the model FLOPs utilisation of a point or a Record: its operations by 6 N + 12 L C T a
    token over those of its devices' peak. NaN: its units are no tokens, or no peak is known.
    """
    if row.get("unit") != "tokens":
        return math.nan
    model = model_of(row)
    flops = float(row[rate]) * TRAINING_PASSES * model.forward_flops_per_unit
    return flops / (row["devices"] * peak_of(str(row["gpu"]), row["precision"]))


def ceilings(gpu: str) -> dict[str, Ceiling]:
    """The ceilings known of the device called `gpu`, by quantity: measured ones where there are,
    else the data sheet's.
    """
    return _ceilings(paths.RUNS, gpu)


@lru_cache
def _ceilings(runs: Path, gpu: str) -> dict[str, Ceiling]:
    """Measured: the median over devices, or pairs of them, of the machine with most. A link to the
    host counts its slower direction.
    """
    known = next(
        ({c.quantity: c for c in table} for part, table in CEILINGS.items() if part in gpu), {}
    )
    others = [Ceilings(**row) for row in published("ceilings", runs)]
    found = [c for c in [*read_ceilings(runs), *others] if c.gpu == gpu]
    if not found:
        return known
    best = max(found, key=lambda c: len(c.memory))
    source = (
        f"measured on {best.machine} at commit {best.commit[:7]}, random data, median over devices"
    )
    pairs = [value for i, row in enumerate(best.links) for j, value in enumerate(row) if i != j]
    host = [min(pair) for pair in zip(best.host_to_device, best.device_to_host, strict=True)]
    carried = {"memory": best.memory, "device_link": pairs, "host_link": host}
    values = [(name, row, "FLOP/s") for name, row in best.matmul.items()] + [
        (name, row, "B/s") for name, row in carried.items()
    ]
    day = best.measured_at[:10]
    return known | {
        name: Ceiling(name, float(np.median(row)), unit, "measured", source, day)
        for name, row, unit in values
        if row
    }


class Bound(NamedTuple):
    """Upper bounds of a rate in units/s of all devices: by arithmetic, by memory, by what moves;
    infinite where nothing known limits.
    """

    compute: float
    memory: float
    communication: float

    @property
    def units_per_s(self) -> float:
        """The lowest of the three: reached only if computing, memory and links overlap
        perfectly.
        """
        return min(self)

    @property
    def binding(self) -> str:
        """Which of the three is the lowest; empty where none is known."""
        return self._fields[self.index(min(self))] if np.isfinite(min(self)) else ""


def sent_share(kind: str, devices: int) -> float:
    """Bytes that each of `devices` devices must send at least, over the bytes that all of them hand
    to a collective.
    An all-reduce of S bytes a device: 2 (P-1)/P S (Patarasuk and Yuan 2009), so 2 (P-1)/P^2 of the
        P S handed over; a reduce-scatter half of it. An all-gather, in which P devices bring A
        bytes together: each part of A/P goes to P - 1 others, (P-1)/P A.
    """
    return (
        {"all_reduce": 2 / devices, "reduce_scatter": 1 / devices, "all_gather": 1.0}[kind]
        * (devices - 1)
        / devices
    )


def communication_time_s(
    moved_bytes: Mapping[str, float],
    devices: int,
    device_link: float,
    host_link: float,
    group: int | None = None,
) -> float:
    """The least seconds that one step's traffic can take, links of all devices busy both ways at
    once; the slower kind of link decides.
    Collectives: `sent_share` of what their devices hand over. Copies between devices: D bytes,
        spread evenly at best, t = D / (P L).
    To and from the host the two directions overlap: t = max(down, up) / (P H). L, H: one-way
    bytes/s of one device.
    group: devices of the smallest group that a collective joins, where not all take part in each:
        the least that any must send.
    """
    b = {kind: float(moved_bytes.get(kind, 0)) for kind in KINDS}
    group = group or devices
    collectives = sum(
        sent_share(kind, group) * b[kind] for kind in ("all_reduce", "reduce_scatter", "all_gather")
    )
    between = (b["device_to_device"] + group * collectives) / devices
    host = max(b["host_to_device"], b["device_to_host"]) / devices
    return max(between / device_link, host / host_link)


def memory_bytes_per_unit(model: Model, precision: str) -> float:
    """Bytes that one unit passes through a device's memory in training, at least: two a number in
    16 bits, else four.
    """
    return model.memory_passes_per_unit * (
        2 if precision in ("bf16", "bf16_params", "fp16") else 8 if precision == "fp64" else 4
    )


def bound_units_per_s(
    model: Model,
    gpu: str,
    precision: str,
    devices: int,
    units_per_step: float,
    moved_bytes: Mapping[str, float] | None = None,
    group: int | None = None,
) -> Bound:
    """The most units/s that `devices` devices called `gpu` can train.

    compute: N C / (3 F), C the device's FLOP/s in `precision`, F the model's forward FLOPs a unit,
        without what fast convolutions spare.
    memory: N M / m, m the bytes a unit must pass through memory (`memory_bytes_per_unit`).
    communication: U / t, U the units of one step over all devices, t of `communication_time_s`
        (`group` too).
    """
    known = {quantity: ceiling.value for quantity, ceiling in ceilings(gpu).items()}
    arithmetic, memory, device_link, host_link = (
        known.get(quantity, math.inf)
        for quantity in (precision.removesuffix("_params"), "memory", "device_link", "host_link")
    )
    spared = model.spared_flops_per_unit if precision in FAST_CONVOLUTIONS else 0.0
    compute_s = TRAINING_PASSES * (model.forward_flops_per_unit - spared) / arithmetic
    memory_s = memory_bytes_per_unit(model, precision) / memory
    if moved_bytes:
        seconds = communication_time_s(moved_bytes, devices, device_link, host_link, group)
    else:
        seconds = 0.0
    least = ((devices, compute_s), (devices, memory_s), (units_per_step, seconds))
    return Bound._make(amount / s if s else math.inf for amount, s in least)


def bounds(frame: pd.DataFrame) -> pd.DataFrame:
    """Each ok row of the frame with its bounds (units/s): key, *_bound, bound (the least), binding
    (which), share_of_bound.
    """
    ok = frame[frame["status"] == "ok"]
    rows = []
    for row in ok.to_dict("records"):
        # what was not counted bounds nothing
        moved = {
            kind: float(row[f"moved_bytes_{kind}"])
            for kind in KINDS
            if pd.notna(row[f"moved_bytes_{kind}"])
        }
        model = model_of(row)
        units = row["units"] / row["timed_steps"]
        shared = row["model_parallel"]
        # where some devices share a copy of the model and some hold others, the smallest
        # collective; else all take part
        if pd.isna(shared):
            group = None
        else:
            group = min(
                (n for n in (int(shared), row["devices"] // int(shared)) if n > 1), default=None
            )
        found = bound_units_per_s(
            model, row["gpu"], row["precision"], row["devices"], units, moved, group
        )
        rows.append((row["key"], *found, found.units_per_s, found.binding))
    columns = ["key", "compute_bound", "memory_bound", "communication_bound", "bound", "binding"]
    table = pd.DataFrame(rows, columns=columns).replace({np.inf: np.nan})
    return table.assign(share_of_bound=ok["units_per_s"].to_numpy() / table["bound"])


def with_bounds(points: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """The points with means of `bounds` over their own Records: bound (units/s), bound_by ("": none
    is known), of_bound (the share).
    """
    keys = points["keys"].str.split(", ").explode()
    each = bounds(frame).set_index("key").reindex(keys).groupby(keys.index)
    found = each.agg(
        bound=("bound", "mean"), bound_by=("binding", "first"), of_bound=("share_of_bound", "mean")
    )
    return points.join(found.fillna({"bound_by": ""}))
