"""The bytes model of kinds of parallelism: what a device must send in a step, worked out from descriptions alone."""

from __future__ import annotations

from collections.abc import Mapping

from multigpu.placements.partition import ACTIVATION_BYTES, EXACT_BYTES, bubble, section_places, share_of_work, typical_extents
from multigpu.workloads.base import Model

LAYER_TYPES = {"stack_dense": "dense", "stack_convolution": "convolution", "stack_recurrent": "recurrent"}
"""Models of one kind of layer -> the kind, in the order of every figure."""


def sent_share(kind: str, devices: int) -> float:
    """Bytes that each of `devices` devices must send at least, over the bytes that all of them hand to a collective.

    An all-reduce of S bytes a device: 2 (P-1)/P S (Patarasuk and Yuan 2009), so 2 (P-1)/P^2 of the P S handed over. A reduce-scatter
    of as much: half of that. An all-gather, in which P devices bring A bytes together: each part of A/P goes to P - 1 others (a ring
    passes as much through every device), (P-1)/P A.
    """
    factor = {
        "all_reduce": 2 * (devices - 1) / devices**2,
        "reduce_scatter": (devices - 1) / devices**2,
        "all_gather": (devices - 1) / devices,
    }
    return factor[kind]


def data_parallel_bytes(model: Model, devices: int) -> float:
    """Bytes a device sends in a step of data parallelism: one all-reduce of all gradients (float32), whatever the batch."""
    return sent_share("all_reduce", devices) * devices * model.parameter_bytes


def cut_bytes_per_row(model: Model, devices: int, precision: str = "bf16") -> float:
    """Bytes a device sends for each row of the joined batch when every matrix is cut over `devices` devices.

    Raises:
        ValueError: the model does not say how it is cut.
    """
    if model.splitting is None:
        raise ValueError(f"{model.name!r} does not say how its matrices are cut")
    total = 0.0
    for exchange in model.splitting.exchanges:
        size = EXACT_BYTES.get(precision, 4) if exchange.exact else ACTIVATION_BYTES[precision]
        brought = exchange.elements * size * (1 if exchange.kind == "all_gather" else devices)
        total += sent_share(exchange.kind, devices) * brought
    return total


def crossing_batch(model: Model, devices: int, precision: str = "bf16") -> float:
    """The joined batch below which cut matrices send less than data parallelism, and above which they send more."""
    return data_parallel_bytes(model, devices) / cut_bytes_per_row(model, devices, precision)


def stage_work(model: Model, devices: int, extents: Mapping[str, int] | None = None) -> list[float]:
    """Forward operations of each stage when the model's layers are spread over `devices` devices, for one row (or these extents)."""
    sums = [0.0] * devices
    for section, place in zip(model.sections, section_places(model, devices), strict=True):
        sums[place] += share_of_work(section, extents or typical_extents(model))
    return sums


def expected_idle(model: Model, devices: int, micro_batches: int) -> tuple[float, float]:
    """The share of all devices' time that a pipeline leaves idle: with equal stages, and with stages as unequal as their operations."""
    return bubble([1.0] * devices, micro_batches), bubble(stage_work(model, devices), micro_batches)
