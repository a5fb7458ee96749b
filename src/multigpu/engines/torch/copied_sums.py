"""Sums over replicas by copies from device to device, which copy engines carry out beside kernels.

An all-reduce of the library is a kernel whose blocks each take a multiprocessor from what computes
beside it; kernels that want all of them (the persistent LSTM's) then run twice as long. Here a
replica owns a piece of each bucket: all others copy theirs into its inbox, it adds them up, and
copies the sum back to all. Only that addition, and two meetings of one block, take multiprocessors.
The bytes that a replica sends and receives are those of a ring: 2 (P - 1) / P of a bucket.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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


def piece_of(count: int, replicas: int) -> int:
    """Return how many of `count` numbers each replica adds up, the last one perhaps fewer."""
    share = -(-count // replicas)
    return -(-share // ALIGNED) * ALIGNED


class CopiedSums:
    """Sums several stretches of numbers over replicas, each whenever its turn comes.

    counts: the numbers of each stretch. Sums are made one after another: they share an inbox.
    make: makes memory of so many numbers of a type that all replicas reach.
    dtype: in which numbers travel; 16-bit ones are added up in float32.
    stream: the device's stream that copies and adds; None: there is none, on CPUs.
    """

    def __init__(
        self,
        counts: list[int],
        make: Callable[[int, torch.dtype], Peers],
        replicas: int,
        dtype: torch.dtype,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        self.counts, self.replicas, self.stream = counts, replicas, stream
        self.pieces = [piece_of(count, replicas) for count in counts]
        self.starts = [0]
        for piece in self.pieces:
            self.starts.append(self.starts[-1] + replicas * piece)
        self.inbox = self.starts[-1]
        self.peers = make(self.inbox + replicas * max(self.pieces), dtype)

    def stretch(self, index: int) -> Tensor:
        """Return this replica's numbers of a stretch, (its count,): put there what is to be
        added up, and find the sum there.
        """
        return self.peers.of(self.peers.rank, self.starts[index], self.counts[index])

    def start(self, index: int) -> Awaited:
        """Begin to sum a stretch over replicas, in place, behind the current stream's work.

        Returns what the current stream waits by for the sum.
        """
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())
        with self._beside():
            self._sum(index)
            return Done() if self.stream is None else self.stream.record_event()

    def _beside(self) -> AbstractContextManager[object]:
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def _sum(self, index: int) -> None:
        peers, piece, start = self.peers, self.pieces[index], self.starts[index]
        others = [(peers.rank + each) % self.replicas for each in range(1, self.replicas)]
        for other in others:
            sent = peers.of(peers.rank, start + other * piece, piece)
            peers.of(other, self.inbox + peers.rank * piece, piece).copy_(sent, non_blocking=True)
        peers.meet()
        mine = peers.of(peers.rank, start + peers.rank * piece, piece)
        total = mine.float() if mine.dtype.itemsize < 4 else mine
        for other in others:
            total.add_(peers.of(peers.rank, self.inbox + other * piece, piece))
        if total is not mine:
            mine.copy_(total)
        for other in others:
            theirs = peers.of(other, start + peers.rank * piece, piece)
            theirs.copy_(mine, non_blocking=True)
        peers.meet()
