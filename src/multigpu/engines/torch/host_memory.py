"""Variables whose masters live in host memory that all replicas of a Run share, the memory itself, and a barrier in it."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from multigpu.engines.torch.stores import Ids, Store, leaf
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Rows
from multigpu.engines.torch.variables import views_of
from multigpu.engines.torch.wire import barrier
from multigpu.placements.traffic import Assigned

PORTABLE = 1
"""CUDA's flag for pages that are locked for every device of the process, and not only for the current one."""


class SharedMemory:
    """Flat tensors that all replicas of a Run map, page-locked where there is a GPU; unlinked once open, so a killed one leaves nothing."""

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
        for tensor in self.locked:
            torch.cuda.check_error(int(torch.cuda.cudart().cudaHostUnregister(tensor.data_ptr())))
        self.locked.clear()


class HostBarrier:
    """A barrier of ten microseconds: each replica watches the others' counters in shared memory; TimeoutError after `timeout_s`."""

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


Slots = dict[str, tuple[int, torch.dtype]]


class HostMasters:
    """A store's dense variables in one flat stretch of shared memory, its tables, and what else it keeps there (`slots`)."""

    def __init__(self, context: Context, store: Store, slots: Slots) -> None:
        self.store, devices = store, context.devices
        dtype = devices.dtype
        sizes: Slots = {"barrier": (devices.processes, torch.int64), "dense": (store.total, dtype), **slots}
        for table in store.tables:
            sizes[f"table-{table.variable.name}"] = (table.variable.elements, dtype)
        self.memory = SharedMemory(context.shared, devices.process, devices.cuda)
        context.closing.callback(self.memory.close)  # unlocks the pages; the memory goes with its last user
        self.tensors = self.memory.tensors(sizes)
        self.barrier = HostBarrier(self.tensors["barrier"], devices.process, context.timeout_s)
        self.dense = self.tensors["dense"]
        self.memory.lock(self.dense)
        # rows are gathered here on their way to each device
        self.outgoing = {
            (rank, t.variable.name): torch.empty(
                context.capacity[t.variable.name], t.variable.shape[1], dtype=dtype, pin_memory=devices.cuda
            )
            for rank in store.ranks
            for t in store.tables
        }
        if devices.process == 0:
            self.dense.copy_(store.values[0])
            for table in store.tables:
                self.table(table).copy_(store.initial(table, 0))
            devices.synchronise()
        self.barrier.wait()

    def table(self, table: Assigned) -> Tensor:
        return self.tensors[f"table-{table.variable.name}"].view(table.variable.shape)

    def look_up(self, rank: int, ids: Ids) -> Rows:
        """Rows gathered on the host and sent to a replica's device."""
        found, values = {}, self.store.values[rank]
        for table in self.store.tables:
            name = table.variable.name
            flat = ids.host[name].reshape(-1)
            gathered = self.outgoing[rank, name][: flat.numel()]
            with phase("pull", host=True):
                torch.index_select(self.table(table), 0, flat, out=gathered)
            rows = torch.empty(gathered.shape, device=values.device, dtype=values.dtype)
            self.store.wire.to_device(rows, gathered)
            found[name] = leaf(rows, ids.host[name])
        return found

    def values(self) -> Iterator[tuple[str, Tensor]]:
        """Every variable by name, as the module shapes it."""
        like = self.store.views[self.store.ranks[0]]
        yield from zip(like, views_of(self.dense, like.values()), strict=True)
        for table in self.store.tables:
            yield table.variable.name, self.table(table)
