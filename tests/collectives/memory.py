"""P processes as threads of one, for tests and for counting: messages wait for their receiver, as they do on a GPU.

A library that buffers would hide a deadlock; here an exchange ends only when every message of it was taken. Every rank also
keeps a logical clock (Lamport 1978), which advances by one an exchange and never behind the clocks it receives from: after an
all-reduce the highest is the number of messages that had to follow each other.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multigpu.collectives.algorithm import Cost, Link, Messages, Transport, counted_cost

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class _Message:
    tensor: Tensor
    clock: int
    taken: bool = False


class World:
    """What the ranks of one in-memory group share. timeout_s: after which a rank that waits gives up, and all with it."""

    def __init__(self, size: int, timeout_s: float = 10.0) -> None:
        self.size, self.timeout_s = size, timeout_s
        self.changed = threading.Condition()
        self.waiting: defaultdict[Link, deque[_Message]] = defaultdict(deque)
        self.failed = False


class MemoryTransport(Transport):
    """One rank of a `World`. clock: exchanges so far on the longest path of messages that leads here."""

    def __init__(self, world: World, rank: int) -> None:
        super().__init__(rank, world.size, self._exchange)
        self.world = world
        self.clock = 0

    def _exchange(self, sends: Messages, receives: Messages) -> None:
        world, start = self.world, self.clock
        mine = [_Message(tensor, start) for _, tensor in sends]
        with world.changed:
            for (peer, _), message in zip(sends, mine, strict=True):
                world.waiting[self.rank, peer].append(message)
            world.changed.notify_all()
            deadline = time.monotonic() + world.timeout_s
            for peer, tensor in receives:
                box = world.waiting[peer, self.rank]
                self._wait(lambda box=box: bool(box), deadline, f"for a message from process {peer}")  # type: ignore[misc]
                message = box.popleft()
                assert (message.tensor.shape, message.tensor.dtype) == (tensor.shape, tensor.dtype), (peer, self.rank)
                tensor.copy_(message.tensor)
                message.taken = True
                self.clock = max(self.clock, message.clock)
                world.changed.notify_all()
            peers = sorted({peer for peer, _ in sends})
            self._wait(lambda: all(message.taken for message in mine), deadline, f"until its messages to {peers} are taken")
        self.clock = max(self.clock, start) + 1

    def _wait(self, ready: Callable[[], bool], deadline: float, what: str) -> None:
        world = self.world
        while not ready():
            if world.failed:
                raise ConnectionError(f"process {self.rank} waited {what}, and another process failed")
            if not world.changed.wait(deadline - time.monotonic()) and not ready():
                raise TimeoutError(f"process {self.rank} waited {what} for {world.timeout_s} s: the processes block each other")


def run_ranks(size: int, work: Callable[[MemoryTransport], Any], timeout_s: float = 10.0) -> tuple[list[Any], list[MemoryTransport]]:
    """`work(transport)` on every rank at once; what each returned, and the transports with their counts. Raises what the first rank did."""
    world = World(size, timeout_s)
    transports = [MemoryTransport(world, rank) for rank in range(size)]
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def body(rank: int) -> None:
        try:
            results[rank] = work(transports[rank])
        except BaseException as error:
            with world.changed:
                errors.append(error)
                world.failed = True
                world.changed.notify_all()

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results, transports


def counted(transports: list[MemoryTransport]) -> Cost:
    """What the ranks' counters and clocks say of all exchanges so far."""
    links: Counter[Link] = Counter()
    for transport in transports:
        links.update(transport.sent_bytes)
    return counted_cost(links, max(transport.clock for transport in transports))
