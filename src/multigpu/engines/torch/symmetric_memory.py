"""Memory of one size on every device of a group, which each device reads and writes (PyTorch's
symmetric memory). NVLink multicast must be off: plain loads, stores and copies are used.
"""

import os
from typing import Any

import torch
from torch import Tensor

from multigpu.machine.process import MULTICAST_OFF
from multigpu.spec.errors import Unsupported


def symmetric_memory(group: Any, device: torch.device, size: int) -> tuple[Tensor, Any]:
    """Allocate `size` bytes on this device and on that of every other rank, by all ranks together.

    Returns them, (size,) uint8, and PyTorch's handle, by which other ranks' bytes are reached.
    Raises Unsupported: multicast is not switched off, or there is no symmetric memory here.
    """
    on = [name for name, value in MULTICAST_OFF.items() if os.environ.get(name) != value]
    if on:
        raise Unsupported(
            f"symmetric memory is used with NVLink multicast off only: set {', '.join(on)} as the"
            " launcher does"
        )
    try:
        import torch.distributed._symmetric_memory as symmetric

        memory = symmetric.empty(size, dtype=torch.uint8, device=device)
        handle = symmetric.rendezvous(memory, group.group_name)
    except (ImportError, AttributeError, RuntimeError) as error:
        raise Unsupported(
            f"no symmetric memory here: {' '.join(str(error).split())[:200]}"
        ) from None
    return memory, handle


class PeerMemory:
    """As many numbers on every replica as its constructor is told, all within this one's reach.

    rank, replicas: this replica, and how many there are.
    numbers: how many each replica holds; dtype: their type.
    """

    def __init__(self, group: Any, device: torch.device, numbers: int, dtype: torch.dtype) -> None:
        memory, self._handle = symmetric_memory(group, device, numbers * dtype.itemsize)
        self.rank, self.replicas, self.dtype = self._handle.rank, self._handle.world_size, dtype
        self._own = memory.view(dtype)

    def of(self, rank: int, start: int, count: int) -> Tensor:
        """Return a stretch of a replica's numbers, (count,), as memory of this device."""
        if rank == self.rank:
            return self._own[start : start + count]
        return self._handle.get_buffer(rank, (count,), self.dtype, start)

    def meet(self) -> None:
        """Let the current stream go on when those of all replicas have come as far: one block."""
        self._handle.barrier(channel=0)
