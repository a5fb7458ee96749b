"""The bytes model of kinds of parallelism: what a device must send in a step, worked out from descriptions alone."""

from __future__ import annotations

from multigpu.placements.partition import ACTIVATION_BYTES, EXACT_BYTES
from multigpu.workloads.base import Model


def sent_share(kind: str, devices: int) -> float:
    """Bytes that each of `devices` devices must send at least, over the bytes that all of them hand to a collective.

    An all-reduce of S bytes a device: 2 (P-1)/P S (Patarasuk and Yuan 2009), so 2 (P-1)/P^2 of the P S handed over. A reduce-scatter
    of as much: half of that. An all-gather, in which P devices bring A bytes together: each part of A/P goes to P - 1 others (a ring
    passes as much through every device), (P-1)/P A.
    """
    return {"all_reduce": 2 / devices, "reduce_scatter": 1 / devices, "all_gather": 1.0}[kind] * (devices - 1) / devices


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
