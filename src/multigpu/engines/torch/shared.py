"""Host memory that the processes of one machine share, and a barrier in it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch import Tensor

from multigpu.engines.torch.wire import barrier

PORTABLE = 1
"""CUDA's flag for pages that are locked for every device of the process, and not only for the current one."""


class SharedMemory:
    """Flat tensors in memory that all replicas of a Run map, page-locked where there is a GPU to copy to.

    The files behind them are unlinked as soon as every replica has them open, so nothing is left behind by a killed one.
    """

    def __init__(self, folder: Path, rank: int, cuda: bool) -> None:
        self.folder, self.rank, self.cuda = folder, rank, cuda
        self.locked: list[Tensor] = []

    def tensors(self, sizes: dict[str, tuple[int, torch.dtype]]) -> dict[str, Tensor]:
        """By name, zeroed tensors of so many elements. Every replica calls this with the same sizes."""
        paths = {name: self.folder / name for name in sizes}
        if self.rank == 0:
            for name, (size, dtype) in sizes.items():
                with open(paths[name], "wb") as file:
                    # allocate rather than only size: a full memory fails here, with a message, and not later with a signal
                    os.posix_fallocate(file.fileno(), 0, max(1, size * dtype.itemsize))
        barrier()
        found = {}
        for name, (size, dtype) in sizes.items():
            found[name] = torch.from_file(str(paths[name]), shared=True, size=size, dtype=dtype) if size else torch.empty(0, dtype=dtype)
        barrier()
        if self.rank == 0:
            for path in paths.values():
                path.unlink()
        return found

    def lock(self, tensor: Tensor) -> None:
        """Page-lock memory that this replica copies to or from its GPU, so that the copies are asynchronous and fast."""
        if self.cuda and tensor.numel():
            torch.cuda.check_error(int(torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), tensor.nbytes, PORTABLE)))
            self.locked.append(tensor)

    def close(self) -> None:
        """Unlock the pages."""
        for tensor in self.locked:
            torch.cuda.check_error(int(torch.cuda.cudart().cudaHostUnregister(tensor.data_ptr())))
        self.locked.clear()


class HostBarrier:
    """A barrier of ten microseconds: each replica writes its own counter in shared memory and watches the others'.

    Raises:
        TimeoutError: another replica did not arrive in `timeout_s`.
    """

    def __init__(self, counters: Tensor, rank: int, timeout_s: float) -> None:
        self.counters, self.rank, self.timeout_s = counters.numpy(), rank, timeout_s
        self.passed = 0

    def wait(self) -> None:
        self.passed += 1
        self.counters[self.rank] = self.passed
        if len(self.counters) == 1:
            return
        deadline = time.monotonic() + self.timeout_s
        while self.counters.min() < self.passed:
            if time.monotonic() > deadline:
                late = [int(i) for i in (self.counters < self.passed).nonzero()[0]]
                raise TimeoutError(f"replica {self.rank} waited {self.timeout_s:.0f} s on the host for replicas {late}")
            time.sleep(0)
