"""Sums over replicas by copies from device to device, which copy engines carry out beside kernels.

An all-reduce of the library is a kernel whose blocks each take a multiprocessor from what computes
beside it; kernels that want all of them (the persistent LSTM's) then run twice as long. Here a
replica owns a piece of each part of a bucket: all others copy theirs into its inbox, it adds them
up, and copies the sum, or the values that it has updated by it, back to all. Only that addition and
update, and two meetings of one block, take multiprocessors. The bytes that a replica sends and
receives are those of a ring: 2 (P - 1) / P of a bucket.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

ALIGNED = 16
"""Pieces are multiples of so many numbers: copies of whole cache lines are the fastest."""


class Peers(Protocol):
    """Numbers of every replica that this one reaches (`symmetric_memory.PeerMemory`)."""

    rank: int
    replicas: int

    def of(self, rank: int, start: int, count: int) -> Tensor:
        """Return a stretch of a replica's numbers, (count,)."""

    def meet(self) -> None:
        """Let later work begin when all replicas have come as far."""


class Awaited(Protocol):
    """Work that the current stream can wait for, as the library's and events are."""

    def wait(self) -> object:
        """Let the current stream's later work begin when this has ended."""


class Done:
    """Work that has ended."""

    def wait(self) -> None:
        """Wait for nothing."""


def aligned(count: int) -> int:
    """Return the least multiple of `ALIGNED` that is not below `count`."""
    return -(-count // ALIGNED) * ALIGNED


@dataclass(frozen=True)
class Part:
    """Numbers that lie together in a stretch, cut into pieces, one a replica.

    start: where they begin in the memory; inbox: where the pieces that others send begin.
    """

    start: int
    count: int
    inbox: int
    replicas: int

    @property
    def piece(self) -> int:
        """How many numbers each replica adds up; the last ones fewer, or none."""
        return aligned(-(-self.count // self.replicas))

    def piece_of(self, rank: int) -> tuple[int, int]:
        """Return where a replica's piece begins within the part, and how many numbers it has."""
        start = min(rank * self.piece, self.count)
        return start, min(self.piece, self.count - start)


class CopiedSums:
    """Sums several stretches of numbers over replicas, each whenever its turn comes.

    counts: of each stretch the numbers of its parts, each of which begins at a multiple of
        `ALIGNED`. Sums are made one after another: stretches share an inbox.
    make: makes memory of so many numbers of a type that all replicas reach.
    dtype: in which numbers travel; 16-bit ones are added up in float32.
    stream: the device's stream that copies and adds; None: there is none, on CPUs.
    update: called with a stretch's number when this replica's pieces of its sum are there; pieces
        of its `values` then travel to all instead of the sum's. None: the sum travels.
    """

    def __init__(
        self,
        counts: Sequence[Sequence[int]],
        make: Callable[[int, torch.dtype], Peers],
        replicas: int,
        dtype: torch.dtype,
        stream: torch.cuda.Stream | None = None,
        update: Callable[[int], None] | None = None,
    ) -> None:
        self.replicas, self.stream, self.update = replicas, stream, update
        self.counts = [sum(map(aligned, each)) for each in counts]
        self.starts = [0]
        for count in self.counts:
            self.starts.append(self.starts[-1] + count)
        self.values_at = self.starts[-1] if update is not None else 0
        inbox = self.values_at + self.starts[-1]
        end = inbox
        self.parts: list[list[Part]] = []
        for start, each in zip(self.starts, counts, strict=False):
            arriving, parts = inbox, []
            for count in each:
                parts.append(Part(start, count, arriving, replicas))
                start += aligned(count)
                arriving += replicas * parts[-1].piece
            self.parts.append(parts)
            end = max(end, arriving)
        self.peers, self.nbytes = make(end, dtype), end * dtype.itemsize
        # what lies between parts is summed, too; others may have put something into the inbox
        self.peers.of(self.peers.rank, 0, inbox).zero_()

    def stretch(self, index: int, values: bool = False) -> Tensor:
        """Return this replica's numbers of a stretch, (its count,): put there what is to be
        added up, and find the sum there, or of a divided update this replica's pieces of it.

        values: the values that a divided update changes instead.
        """
        start = self.starts[index] + (self.values_at if values else 0)
        return self.peers.of(self.peers.rank, start, self.counts[index])

    def _owned(self, index: int) -> list[tuple[int, int]]:
        """Return where this replica's pieces of a stretch begin, and how many numbers they have."""
        places = [(part.start, *part.piece_of(self.peers.rank)) for part in self.parts[index]]
        return [(start + begin, count) for start, begin, count in places if count]

    def own_pieces(self, index: int) -> list[tuple[Tensor, Tensor]]:
        """Return values and sums of the pieces that this replica owns, none of them empty."""
        mine = partial(self.peers.of, self.peers.rank)
        places = self._owned(index)
        return [
            (mine(self.values_at + start, count), mine(start, count)) for start, count in places
        ]

    def start(self, index: int, elsewhere: Mapping[int, Tensor] | None = None) -> Awaited:
        """Begin to sum a stretch over replicas, in place, behind the current stream's work.

        elsewhere: by the number of a part, where its numbers are if not in the stretch, (count,).

        Returns what the current stream waits by for the sum, or the values.
        """
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())
        with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            self._sum(index, elsewhere or {})
            return Done() if self.stream is None else self.stream.record_event()

    def _sum(self, index: int, elsewhere: Mapping[int, Tensor]) -> None:
        peers, rank, parts = self.peers, self.peers.rank, self.parts[index]
        others = [(rank + each) % self.replicas for each in range(1, self.replicas)]
        given = [
            elsewhere[number] if number in elsewhere else peers.of(rank, part.start, part.count)
            for number, part in enumerate(parts)
        ]
        for other in others:
            for part, numbers in zip(parts, given, strict=True):
                begin, count = part.piece_of(other)
                if count:
                    inbox = peers.of(other, part.inbox + rank * part.piece, count)
                    inbox.copy_(numbers[begin : begin + count], non_blocking=True)
        peers.meet()
        for part, numbers in zip(parts, given, strict=True):
            self._add(part, numbers, others)
        if self.update is not None:
            self.update(index)
        for other in others:
            for start, count in self._owned(index):
                numbers = peers.of(rank, self.values_at + start, count)
                peers.of(other, self.values_at + start, count).copy_(numbers, non_blocking=True)
        peers.meet()

    def _add(self, part: Part, numbers: Tensor, others: list[int]) -> None:
        """Put the sum of this replica's piece of a part into the stretch."""
        rank = self.peers.rank
        begin, count = part.piece_of(rank)
        if not count:
            return
        mine = self.peers.of(rank, part.start + begin, count)
        total = numbers[begin : begin + count]
        wide = mine.dtype.itemsize < 4
        if wide:
            total = total.float()
        for other in others:
            arrived = self.peers.of(rank, part.inbox + other * part.piece, count)
            total = total.add_(arrived) if wide else torch.add(total, arrived, out=mine)
        if wide:
            mine.copy_(total)
