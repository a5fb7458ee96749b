"""How an algorithm's messages travel: one interface, whatever carries them, with the bytes of every link counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from multigpu.collectives.algorithm import Link

if TYPE_CHECKING:
    from torch import Tensor

Messages = Sequence[tuple[int, "Tensor"]]
"""(peer, tensor): what to send to a peer, or where to put what a peer sends."""


class Transport:
    """One process's end of the links to all others.

    rank, size: of this process and of all. carry: takes what an exchange sends and receives, empty messages left out.
    sent_bytes: (source, target) -> bytes sent so far; a process counts what it sends.
    """

    def __init__(self, rank: int, size: int, carry: Callable[[Messages, Messages], None]) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} does not exist among {size} processes: ranks are 0 to {size - 1}")
        self.rank, self.size, self.carry = rank, size, carry
        self.sent_bytes: Counter[Link] = Counter()

    def exchange(self, sends: Messages, receives: Messages) -> None:
        """Send and receive all of these at once; returns when they may be used (on a GPU: by work enqueued later).

        Messages between two processes arrive in the order of their lists. Both ends know every size; empty tensors are left out
        on both. An exchange may wait for the matching exchanges of its peers, so an algorithm may not rely on buffering.

        Raises:
            ValueError: a peer is this process or none of the group's.
        """
        sends = [(peer, tensor) for peer, tensor in sends if tensor.numel()]
        receives = [(peer, tensor) for peer, tensor in receives if tensor.numel()]
        for peer, _ in (*sends, *receives):
            if peer == self.rank or not 0 <= peer < self.size:
                raise ValueError(f"process {self.rank} of {self.size} cannot exchange messages with process {peer}")
        for peer, tensor in sends:
            self.sent_bytes[self.rank, peer] += tensor.nbytes
        if sends or receives:
            self.carry(sends, receives)

    def send(self, tensor: Tensor, peer: int) -> None:
        """One message to one process."""
        self.exchange([(peer, tensor)], [])

    def receive(self, tensor: Tensor, peer: int) -> None:
        """One message from one process, into `tensor`."""
        self.exchange([], [(peer, tensor)])
