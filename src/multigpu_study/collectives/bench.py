"""One CollectiveRun on one process: its tensor, its messages, its call, its clock and its check.
Needs the default group.
"""

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from multigpu.collectives import algorithms, find_algorithm
from multigpu.collectives.algorithm import Messages, Transport
from multigpu.engines.torch.symmetric_memory import symmetric_memory
from multigpu.machine.machine import this_machine
from multigpu.spec.collective import CollectiveRun

# values are whole numbers from 1 to 13: with 16 processes sums stay below 256, where fp16 and bf16
# are exact too
PERIOD = 13
# about a millisecond for which a GPU spins before a captured sample starts, while the host enqueues
# it
LEAD_CYCLES = 2_000_000


def values(rank: int, elements: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the tensor of `rank`: whole numbers that differ between neighbours and ranks."""
    period = (torch.arange(PERIOD) + 5 * rank) % PERIOD + 1
    return period.to(device=device, dtype=dtype).repeat(-(-elements // PERIOD))[:elements]


def expected_sum(size: int, elements: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The exact sum over all ranks."""
    period = torch.stack(
        [values(rank, PERIOD, torch.float64, torch.device("cpu")) for rank in range(size)]
    ).sum(0)
    return period.to(device=device, dtype=dtype).repeat(-(-elements // PERIOD))[:elements]


def distributed_transport(delay_s: float = 0.0) -> Transport:
    """This process's end of the default group: gloo between CPU processes, NCCL between GPUs.
    delay_s: slept before every exchange.

    All messages of an exchange are posted as one batch: NCCL then runs them as one kernel, in which
    they cannot block each other. With NCCL every process of the group must have taken part in one
    collective before (the library's rule for batches).
    """

    def carry(sends: Messages, receives: Messages) -> None:
        if delay_s:
            time.sleep(delay_s)
        # gloo tells the peer that it may send over the same connection: after a send begun first it
        # would wait until that is over
        operations = [dist.P2POp(dist.irecv, tensor, peer) for peer, tensor in receives]
        operations += [dist.P2POp(dist.isend, tensor, peer) for peer, tensor in sends]
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    return Transport(dist.get_rank(), dist.get_world_size(), carry)


@lru_cache(maxsize=1)
def symmetric_buffer(group: Any, device: torch.device, most_bytes: int) -> Tensor:
    """Memory in which torch's two-shot works, taken once in a group, by all ranks together, and cut
    to every message. Raises Unsupported: as `symmetric_memory`.
    """
    return symmetric_memory(group, device, most_bytes)[0]


class Bench:
    """A Run on this rank. most_bytes: of symmetric memory. interface: whose bytes are read."""

    def __init__(
        self, run: CollectiveRun, most_bytes: int = 0, interface: str | None = None
    ) -> None:
        self.run = run
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self.link = interface
        torch.set_num_threads(max(1, this_machine().cores // run.devices))
        self.cuda = run.device_type == "cuda"
        self.device = torch.device("cuda", self.rank) if self.cuda else torch.device("cpu")
        dtype = torch.float32
        self.source = values(self.rank, run.elements, dtype, self.device)
        self.tensor = torch.empty_like(self.source)
        if run.method == "two_shot":
            buffer = symmetric_buffer(dist.group.WORLD, self.device, most_bytes)
            self.tensor = buffer[: run.elements * dtype.itemsize].view(dtype)
        self.expected = expected_sum(self.size, run.elements, dtype, self.device)
        self.one = torch.zeros(1, device=self.device)
        self.transport = distributed_transport(delay_s=run.delay_us * 1e-6)
        self.call = self._call()
        self.once: Callable[[], Any] = self.call
        self.sample: Callable[[], Any] = self._repeated
        self._refill()
        # NCCL takes batches of sends and receives only after a collective of the whole group
        self._meet()
        for _ in range(run.warmup_calls):  # also opens every link, which a capture may not do
            self.call()
        self.synchronise()
        self.transport.sent_bytes.clear()
        if run.execution == "captured":
            self.once, self.sample = self._captured(self.call), self._captured(self._repeated)
            self.transport.sent_bytes.clear()

    def warm_up(self) -> None:
        self.checked = self.check()
        self.sent = self.counted() if self.run.method in algorithms() else None
        self.carried = self.interface(self.link) if self.link else None

    def time(self) -> list[dict[str, Any]]:
        """This rank's part of the measurement. ArithmeticError: a sum was wrong."""
        times = [self.time_sample() for _ in range(self.run.samples)]
        # all ranks take part in a check, whatever they found
        found = (self.last_sample_fault(), self.checked, self.check())
        if any(found):
            raise ArithmeticError(f"the sum is wrong: {next(filter(None, found))}")
        return [{"times": times, "counted": self.sent, "interface": self.carried}]

    def _call(self) -> Callable[[], Any]:
        """One all-reduce of the tensor, in place."""
        method, tensor = self.run.method, self.tensor
        if method in ("nccl", "gloo"):
            return lambda: dist.all_reduce(tensor)
        if method == "two_shot":
            name = dist.group.WORLD.group_name  # type: ignore[union-attr]
            return lambda: torch.ops.symm_mem.two_shot_all_reduce_(tensor, "sum", name)
        algorithm, transport = find_algorithm(method), self.transport
        return lambda: algorithm.all_reduce(tensor, transport)

    def _repeated(self) -> None:
        for _ in range(self.run.calls):
            if self.run.compute_ms:
                time.sleep(self.run.compute_ms * 1e-3)
            self.call()

    def _captured(self, work: Callable[[], Any]) -> Callable[[], Any]:
        """The work as one CUDA graph; thread-local, as the library's watchdog queries events."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            work()
        return graph.replay

    def close(self) -> None:
        """Let go of tensors and graphs now, which the object's own cycles would hold."""
        self.__dict__.clear()

    def synchronise(self) -> None:
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def _refill(self) -> None:
        self.tensor.copy_(self.source)
        self.synchronise()

    def _meet(self) -> None:
        """All ranks' devices, or processes, reach this point together."""
        dist.all_reduce(self.one)

    def check(self) -> str:
        """Say what is wrong with this rank's sum of fresh values; "": every element is exact."""
        self._refill()
        self._meet()  # two-shot writes into its peers' memory: nobody may still be filling it
        self.once()
        self.synchronise()
        if torch.equal(self.tensor, self.expected):
            return ""
        return f"an element is off by {float((self.tensor - self.expected).abs().max()):g}"

    def counted(self) -> dict[str, int]:
        """Bytes that this rank sent in one call, by target."""
        self.transport.sent_bytes.clear()
        self._refill()
        self.call()
        self.synchronise()
        return {str(target): count for (_, target), count in self.transport.sent_bytes.items()}

    def interface(self, name: str) -> tuple[int, int]:
        """Bytes of this host's interface during one call, headers and one barrier included."""
        self._refill()
        dist.barrier()
        before = psutil.net_io_counters(pernic=True, nowrap=False)[name]
        self.call()
        dist.barrier()
        after = psutil.net_io_counters(pernic=True, nowrap=False)[name]
        return after.bytes_sent - before.bytes_sent, after.bytes_recv - before.bytes_recv

    def time_sample(self) -> float:
        """Seconds of this rank for one sample, all having started together: on a GPU by events on
        its stream, after a meeting there (a captured one is enqueued before it starts, and holds no
        launch), on CPUs by the host's clock, after a barrier.
        """
        self._refill()
        if not self.cuda:
            dist.barrier()
            began = time.perf_counter()
            self.sample()
            return time.perf_counter() - began
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if self.run.execution == "captured":
            torch.cuda._sleep(LEAD_CYCLES)
        self._meet()
        first.record()
        self.sample()
        last.record()
        self.synchronise()
        return first.elapsed_time(last) / 1000

    def last_sample_fault(self) -> str | None:
        """Whether the last sample made all its calls: each multiplies the sum by P. None where the
        wire cannot hold such numbers.
        """
        wire = algorithms()[self.run.method].wire if self.run.method in algorithms() else None
        growth = float(self.size) ** (self.run.calls - 1)
        if wire == "fp16" and 16 * self.size * growth * self.size > 65504:
            return None
        rounding = 2.0**-8 if wire == "bf16" else 2.0**-11 if wire else 2.0**-24
        head = slice(0, 2**20)
        wanted = self.expected[head].double() * growth
        error = float(((self.tensor[head].double() - wanted) / wanted).abs().max())
        # a call that was left out halves them at least
        allowed = min(0.4, (self.run.calls + 1) * self.size * rounding)
        if error <= allowed:
            return None
        return f"after {self.run.calls} calls values are off by {error:.2g} of themselves"
