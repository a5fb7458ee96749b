"""Count every byte that a placement moves, by kind, on the rank that starts the movement."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from multigpu.collectives import find_algorithm
from multigpu.collectives.algorithm import Transport
from multigpu.engines.torch.devices import Devices

# newer releases have other names for the same calls
gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

# stands in a `Copy` for a tensor that another process has
ELSEWHERE = torch.empty(0, device="meta")


@dataclass(frozen=True)
class Copy:
    """`source` on replica `start` into `target` on replica `end`, alike and contiguous."""

    start: int
    source: Tensor
    end: int
    target: Tensor


class HostLink:
    """Counted copies between host memory and devices. counts: bytes by kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def to_device(self, target: Tensor, source: Tensor) -> None:
        self.counts["host_to_device"] += source.nbytes
        target.copy_(source, non_blocking=True)

    def to_host(self, target: Tensor, source: Tensor) -> None:
        """Copy to host memory; synchronise before another reads it."""
        self.counts["device_to_host"] += source.nbytes
        target.copy_(source, non_blocking=True)


class Wire(HostLink):
    """Counted movements of this replica's device; on CPUs "the host" is shared memory."""

    def __init__(self, rank: int, replicas: int) -> None:
        super().__init__()
        self.rank, self.replicas = rank, replicas

    def copy_all(self, *batches: Sequence[Copy]) -> None:
        """Copies listed by all replicas in one order, a call of the library a batch."""
        for copies in batches:
            sends = [(copy.end, copy.source) for copy in copies if copy.start == self.rank]
            self.exchange(
                sends, [(copy.start, copy.target) for copy in copies if copy.end == self.rank]
            )

    def exchange(
        self, sends: Sequence[tuple[int, Tensor]], receives: Sequence[tuple[int, Tensor]]
    ) -> None:
        """Send and receive at once by rank; both ends list what passes in one order."""
        for work in self.start_exchange(sends, receives):
            work.wait()

    def start_exchange(
        self, sends: Sequence[tuple[int, Tensor]], receives: Sequence[tuple[int, Tensor]]
    ) -> list[Any]:
        """As `exchange`, not waiting: wait for the result before touching any tensor."""
        operations = [
            dist.P2POp(dist.isend, tensor, peer) for peer, tensor in sends if tensor.numel()
        ]
        operations += [
            dist.P2POp(dist.irecv, tensor, peer) for peer, tensor in receives if tensor.numel()
        ]
        self.counts["device_to_device"] += sum(tensor.nbytes for _, tensor in sends)
        return dist.batch_isend_irecv(operations) if operations else []

    def all_reduce(self, tensor: Tensor) -> None:
        if self.replicas > 1:
            self.count_all_reduce(tensor.nbytes)
            dist.all_reduce(tensor)

    def reduce(self, gradients: Tensor, algorithm: str) -> None:
        """Sum contiguous gradients over replicas, in place, by this written-out algorithm."""
        find_algorithm(algorithm).all_reduce(
            gradients, Transport(self.rank, self.replicas, self.exchange)
        )

    def reduce_scatter(self, own: Tensor, whole: Tensor) -> None:
        """This replica's stretch of the sum over replicas; `own` may be part of `whole`."""
        if self.replicas > 1:
            self.counts["reduce_scatter"] += whole.nbytes
            scatter(own, whole)

    def start_reduce_scatter(self, own: Tensor, whole: Tensor) -> Any:
        """As `reduce_scatter`, not waiting: wait for the result before touching either."""
        if self.replicas == 1:
            own.copy_(whole)
            return None
        self.counts["reduce_scatter"] += whole.nbytes
        return scatter(own, whole, async_op=True)

    def all_gather(self, whole: Tensor, own: Tensor) -> None:
        """Every replica's stretch, by rank; `own` may be this one's of `whole`."""
        if self.replicas > 1:
            self.counts["all_gather"] += own.nbytes
            gather(whole, own)

    def count_all_reduce(self, count: int) -> None:
        """Count a collective that a library starts by itself."""
        if self.replicas > 1:
            self.counts["all_reduce"] += count

    def count_divided(self, count: int) -> None:
        """Count a stretch summed where it is updated, and the new values brought to all from there:
        all of it from each replica, and each piece once.
        """
        self.counts["reduce_scatter"] += count
        self.counts["all_gather"] += count if self.rank == 0 else 0


class OneProcessWire(HostLink):
    """Counted movements between the host and all devices of a process; none waits."""

    def __init__(self, devices: Devices) -> None:
        super().__init__()
        self.devices, self.replicas = devices, len(devices.each)
        if devices.cuda:
            # copies have streams of their own, one out of and one into each device: on the devices'
            # main streams a copy would wait for all copies asked for before it, from or to either
            # of its ends
            self.outward = [torch.cuda.Stream(device.torch) for device in devices.each]
            self.inward = [torch.cuda.Stream(device.torch) for device in devices.each]

    def copy_all(self, *batches: Sequence[Copy]) -> None:
        """Plain peer copies, all at once, in the order of each end's main stream."""
        copies = [copy for batch in batches for copy in batch if copy.source.numel()]
        self.counts["device_to_device"] += sum(copy.source.nbytes for copy in copies)
        if not self.devices.cuda:
            for copy in copies:
                copy.target.copy_(copy.source)
            return
        # round by round, in each of which every device sends to another one: none waits for a third
        copies.sort(key=lambda copy: (copy.end - copy.start) % self.replicas)
        main = [torch.cuda.current_stream(device.torch) for device in self.devices.each]
        here = torch.cuda.current_device()
        senders, receivers = {copy.start for copy in copies}, {copy.end for copy in copies}
        used = [(main[rank], self.outward[rank]) for rank in senders] + [
            (main[rank], self.inward[rank]) for rank in receivers
        ]
        for stream, side in used:
            side.wait_stream(stream)
        try:
            for copy in copies:
                # the library's copy runs on the source's current stream and orders it with the
                # target's, both ways
                torch.cuda.set_stream(self.inward[copy.end])
                torch.cuda.set_stream(self.outward[copy.start])
                copy.target.copy_(copy.source, non_blocking=True)
        finally:
            for stream in main:
                torch.cuda.set_stream(stream)
            torch.cuda.set_device(here)
        # before anything may free or overwrite either end: both were allocated on the main streams
        for stream, side in used:
            stream.wait_stream(side)

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Sum over replicas, in place, one tensor a device: by NCCL, or additions on CPUs."""
        if self.replicas == 1:
            return
        self.counts["all_reduce"] += sum(tensor.nbytes for tensor in tensors)
        if self.devices.cuda:
            # a group of one process: the library makes its communicators at the first call and
            # keeps them
            torch.cuda.nccl.all_reduce(tensors)
            return
        total = tensors[0]
        for tensor in tensors[1:]:
            total += tensor
        for tensor in tensors[1:]:
            tensor.copy_(total)


def largest(value: float) -> float:
    """The largest of all replicas' values, on the host."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return value
    found = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return float(found)


def barrier() -> None:
    """Wait for every replica, on the host alone: no kernel enters any device's queue."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(torch.zeros(1))
