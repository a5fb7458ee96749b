"""An all-reduce algorithm as a placement's merge: one call on the flat gradient, and the bytes it will move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from multigpu.collectives import find_algorithm
from multigpu.collectives.transport import Messages, Transport

if TYPE_CHECKING:
    from torch import Tensor


class Exchanging(Protocol):
    """What carries a replica's messages: an engine's `Wire` is one, and counts them too."""

    rank: int
    replicas: int

    def exchange(self, sends: Messages, receives: Messages) -> None: ...


class WireTransport(Transport):
    """A transport over an engine's wire, which counts the same bytes as copies between devices."""

    def __init__(self, wire: Exchanging) -> None:
        super().__init__(wire.rank, wire.replicas)
        self.wire = wire

    def _exchange(self, sends: Messages, receives: Messages) -> None:
        self.wire.exchange(sends, receives)


def merge(gradients: Tensor, algorithm: str, wire: Exchanging) -> None:
    """Sum the replicas' gradients in place by the algorithm of this name.

    Args:
        gradients: all of one replica's, as one contiguous tensor.

    Raises:
        ValueError: no such algorithm, or a tensor it cannot cut (see `Algorithm.all_reduce`).
    """
    find_algorithm(algorithm).all_reduce(gradients, WireTransport(wire))


def merged_bytes(algorithm: str, elements: int, item_bytes: int, replicas: int) -> int:
    """Bytes that `merge` moves between all replicas together: the kind "device_to_device", exact for every number of elements.

    It is proportional to the elements, so predictions may be added up by variable.
    """
    return round(find_algorithm(algorithm).cost(elements, item_bytes, replicas).total_bytes)
