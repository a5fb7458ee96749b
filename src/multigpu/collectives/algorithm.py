"""Define an all-reduce algorithm: its code, its formula, and its messages, counted by link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor
else:
    Tensor = Any  # naming an algorithm imports no framework

Link = tuple[int, int]  # (source, target): one direction between two processes
# (peer, tensor): what to send to a peer, or where to put what a peer sends
Messages = Sequence[tuple[int, Tensor]]


class Transport:
    """One process's end of the links to all others.
    carry: takes what an exchange sends and receives, empty messages left out. sent_bytes: so far,
        by Link; a process counts what it sends.
    """

    def __init__(self, rank: int, size: int, carry: Callable[[Messages, Messages], None]) -> None:
        self.rank, self.size, self.carry = rank, size, carry
        self.sent_bytes: Counter[Link] = Counter()

    def exchange(self, sends: Messages, receives: Messages) -> None:
        """Send and receive all of these at once; returns when they may be used (on a GPU: by work
        enqueued later).

        Messages between two processes arrive in the order of their lists. An exchange may wait for
        the matching exchanges of its peers, so an algorithm may not rely on buffering.
        """
        sends = [(peer, tensor) for peer, tensor in sends if tensor.numel()]
        receives = [(peer, tensor) for peer, tensor in receives if tensor.numel()]
        for peer, _ in (*sends, *receives):
            if peer == self.rank or not 0 <= peer < self.size:
                raise ValueError(
                    f"process {self.rank} of {self.size} cannot exchange messages with process"
                    f" {peer}"
                )
        for peer, tensor in sends:
            self.sent_bytes[self.rank, peer] += tensor.nbytes
        if sends or receives:
            self.carry(sends, receives)

    def send(self, tensor: Tensor, peer: int) -> None:
        self.exchange([(peer, tensor)], [])

    def receive(self, tensor: Tensor, peer: int) -> None:
        self.exchange([], [(peer, tensor)])


@dataclass(frozen=True)
class Cost:
    """Of one all-reduce, by formula or as counted.

    latency_terms: messages that must follow each other on the longest path; those of one exchange
        count once.
    busiest_link_bytes: most bytes from one process to one other.
    busiest_way_bytes: most bytes that one process sends, or that one process receives: what a
        full-duplex link to it carries one way.
    busiest_port_bytes: most bytes that one process sends and receives together. total_bytes: of all
        links.

    Document 002 compares 2N(P-1) for a central server with 2N(P-1)/P for a ring. The first adds up
    both directions of the server's link (`busiest_port_bytes`), the second only what a process
    sends (`busiest_way_bytes`). Counted alike, a ring is P/2 times better, not P times.
    """

    latency_terms: int
    busiest_link_bytes: float
    busiest_way_bytes: float
    busiest_port_bytes: float
    total_bytes: float


def counted_cost(links: Mapping[Link, int], latency_terms: int) -> Cost:
    """From the bytes counted on every link."""
    out, into = Counter[int](), Counter[int]()
    for (source, target), count in links.items():
        out[source] += count
        into[target] += count
    link, way, port = (
        float(max(counts.values(), default=0)) for counts in (links, out | into, out + into)
    )
    return Cost(latency_terms, link, way, port, float(sum(links.values())))


@dataclass(frozen=True)
class Algorithm:
    """One way to sum a tensor over P processes so that each ends with the sum.

    run: on a flat tensor, in place, for P > 1. wire: the type in which elements travel, if not
        their own.
    formula: of N and P > 1, the cost of one call on N bytes; exact where the elements divide by the
        number of parts (P, or a power of two for recursive halving). Elsewhere latency terms and
        total are exact, a busiest figure is off by at most 2P elements.
    serial: of N and P, the bytes that must follow each other, where that is not what the busiest
        process sends.

    After every algorithm here all processes hold the same bits: each element's sum is made by one
    process and copied, or by every process from the same values in the order of ranks. So replicas
    cannot drift apart.
    """

    name: str
    run: Callable[[Tensor, Transport], None]
    formula: Callable[[int, int], Cost]
    wire: Literal["bf16", "fp16"] | None = None
    serial: Callable[[int, int], float] | None = None

    def cost(self, elements: int, item_bytes: int, devices: int) -> Cost:
        """Of one call, by the formula: among one process nothing."""
        if devices > 1:
            return self.formula(elements * (2 if self.wire else item_bytes), devices)
        return Cost(0, 0, 0, 0, 0)

    def serial_bytes(self, size: int, devices: int) -> float:
        """Bytes that must follow each other: what the busiest sends, unless `serial` says."""
        if self.serial:
            return self.serial(size, devices)
        return self.cost(size // 4, 4, devices).busiest_way_bytes

    def moved_bytes(self, elements: int, item_bytes: int, devices: int) -> int:
        """Between all processes together, exact, and proportional to the elements."""
        return round(self.cost(elements, item_bytes, devices).total_bytes)

    def all_reduce(self, tensor: Tensor, transport: Transport) -> None:
        """Sum `tensor` over all processes, in place; all call it with equal shapes and types."""
        if not tensor.is_contiguous():
            raise ValueError(
                f"a tensor with strides {tensor.stride()} cannot be cut into messages: all-reduce"
                " contiguous tensors only"
            )
        if self.wire and not tensor.is_floating_point():
            raise ValueError(
                f"{self.name} rounds to {self.wire}, which {tensor.dtype} does not allow: use"
                " floating-point tensors"
            )
        if transport.size > 1 and tensor.numel():
            self.run(tensor.view(-1), transport)


def grid_of(size: int) -> tuple[int, int]:
    """(rows, columns) of the most nearly square grid of `size` processes, columns >= rows."""
    columns = next(c for c in range(1, size + 1) if size % c == 0 and c * c >= size)
    return size // columns, columns
