"""P processes as threads of one, for tests and for counting: messages wait for their receiver, as
they do on a GPU.

A library that buffers would hide a deadlock; here an exchange ends only when every message of it
was taken. Every rank also keeps a logical clock (Lamport 1978), which advances by one an exchange
and never behind the clocks it receives from: after an all-reduce the highest is the number of
messages that had to follow each other.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any

from multigpu.collectives.algorithm import Cost, Link, Messages, Transport, counted_cost


class MemoryTransport(Transport):
    """One rank. boxes: by link, (tensor, clock, whether it was taken) on their way. timeout_s:
    after which a rank that waits gives up.
    """

    def __init__(
        self, rank: int, size: int, boxes: Mapping[Link, SimpleQueue[Any]], timeout_s: float
    ) -> None:
        super().__init__(rank, size, self._exchange)
        self.boxes, self.timeout_s, self.clock = boxes, timeout_s, 0

    def _exchange(self, sends: Messages, receives: Messages) -> None:
        clock, mine = self.clock, [(peer, Event()) for peer, _ in sends]
        for (peer, tensor), (_, taken) in zip(sends, mine, strict=True):
            self.boxes[self.rank, peer].put((tensor, clock, taken))
        for peer, tensor in receives:
            try:
                sent, theirs, taken = self.boxes[peer, self.rank].get(timeout=self.timeout_s)
            except Empty:
                raise TimeoutError(
                    f"process {self.rank} waited in vain for a message from process {peer}"
                ) from None
            assert (sent.shape, sent.dtype) == (tensor.shape, tensor.dtype), (peer, self.rank)
            tensor.copy_(sent)
            taken.set()
            clock = max(clock, theirs)
        for peer, taken in mine:
            if not taken.wait(self.timeout_s):
                raise TimeoutError(
                    f"process {self.rank} waited in vain until its message to process {peer} is"
                    " taken"
                )
        self.clock = clock + 1


def run_ranks(
    size: int, work: Callable[[MemoryTransport], Any], timeout_s: float = 10.0
) -> tuple[list[Any], list[MemoryTransport]]:
    """`work(transport)` on every rank at once; what each returned, and the transports with their
    counts. Raises what the first rank did.
    """
    boxes: dict[Link, SimpleQueue[Any]] = {
        (source, target): SimpleQueue() for source in range(size) for target in range(size)
    }
    transports = [MemoryTransport(rank, size, boxes, timeout_s) for rank in range(size)]
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(work, transports)), transports


def counted(transports: list[MemoryTransport]) -> Cost:
    """What the ranks' counters and clocks say of all exchanges so far."""
    links = sum((transport.sent_bytes for transport in transports), Counter[Link]())
    return counted_cost(links, max(transport.clock for transport in transports))
