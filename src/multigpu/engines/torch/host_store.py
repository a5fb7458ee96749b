"""A parameter server in host memory that all replicas share, and its work among processes."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from multigpu.engines.torch.stores import Ids, Store, gradient_of, leaf
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Rows
from multigpu.engines.torch.variables import make_optimizer, views_of
from multigpu.engines.torch.wire import barrier
from multigpu.placements.partition import bounds
from multigpu.placements.traffic import Assigned

# CUDA's flag for pages that are locked for every device of the process, and not only for the
# current one
PORTABLE = 1


class SharedMemory:
    """Flat tensors that all replicas of a Run map; a killed one leaves none, being unlinked."""

    def __init__(self, folder: Path, rank: int, cuda: bool) -> None:
        self.folder, self.rank, self.cuda = folder, rank, cuda
        self.locked: list[Tensor] = []

    def tensors(self, sizes: dict[str, tuple[int, torch.dtype]]) -> dict[str, Tensor]:
        """Zeroed tensors of so many elements, by name. Every replica calls this alike."""
        paths = {name: self.folder / name for name in sizes}
        if self.rank == 0:
            for name, (size, dtype) in sizes.items():
                with open(paths[name], "wb") as file:
                    # allocate rather than only size: a full memory fails here, with a message, and
                    # not later with a signal
                    os.posix_fallocate(file.fileno(), 0, max(1, size * dtype.itemsize))
        barrier()
        found = {}
        for name, (size, dtype) in sizes.items():
            found[name] = (
                torch.from_file(str(paths[name]), shared=True, size=size, dtype=dtype)
                if size
                else torch.empty(0, dtype=dtype)
            )
        barrier()
        if self.rank == 0:
            for path in paths.values():
                path.unlink()
        return found

    def lock(self, tensor: Tensor) -> None:
        """Page-lock memory for asynchronous copies to or from this replica's GPU."""
        if self.cuda and tensor.numel():
            torch.cuda.check_error(
                int(
                    torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), tensor.nbytes, PORTABLE)
                )
            )
            self.locked.append(tensor)

    def close(self) -> None:
        for tensor in self.locked:
            torch.cuda.check_error(int(torch.cuda.cudart().cudaHostUnregister(tensor.data_ptr())))
        self.locked.clear()


class HostBarrier:
    """A barrier of 10 µs on counters in shared memory; TimeoutError after `timeout_s`."""

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
                raise TimeoutError(
                    f"replica {self.rank} waited {self.timeout_s:.0f} s on the host for replicas"
                    f" {late}"
                )
            time.sleep(0)


Slots = dict[str, tuple[int, torch.dtype]]


class HostMasters:
    """A store's dense variables in one stretch of shared memory, its tables, its `slots`."""

    def __init__(self, context: Context, store: Store, slots: Slots) -> None:
        self.store, devices = store, context.devices
        dtype = devices.dtype
        sizes: Slots = {
            "barrier": (devices.processes, torch.int64),
            "dense": (store.total, dtype),
            **slots,
        }
        for table in store.tables:
            sizes[f"table-{table.variable.name}"] = (table.variable.elements, dtype)
        self.memory = SharedMemory(context.shared, devices.process, devices.cuda)
        # unlocks the pages; the memory goes with its last user
        context.closing.callback(self.memory.close)
        self.tensors = self.memory.tensors(sizes)
        self.barrier = HostBarrier(self.tensors["barrier"], devices.process, context.timeout_s)
        self.dense = self.tensors["dense"]
        self.memory.lock(self.dense)
        # rows are gathered here on their way to each device
        looked_up = [
            (rank, t.variable, context.capacity[t.variable.name])
            for rank in store.ranks
            for t in store.tables
        ]
        self.outgoing = {
            (rank, v.name): torch.empty(rows, v.shape[1], dtype=dtype, pin_memory=devices.cuda)
            for rank, v, rows in looked_up
        }
        if devices.process == 0:
            self.dense.copy_(store.values[0])
            for table in store.tables:
                self.table(table).copy_(store.initial(table, 0))
            devices.synchronise()
        self.barrier.wait()

    def table(self, table: Assigned) -> Tensor:
        return self.tensors[f"table-{table.variable.name}"].view(table.variable.shape)

    def _room(self, rank: int, name: str, rows: int) -> Tensor:
        """Where so many rows are gathered; it grows to twice its size at least."""
        room = self.outgoing[rank, name]
        if len(room) < rows:
            grown = (max(rows, 2 * len(room)), room.shape[1])
            room = torch.empty(grown, dtype=room.dtype, pin_memory=room.is_pinned())
            self.outgoing[rank, name] = room
        return room[:rows]

    def look_up(self, rank: int, ids: Ids) -> Rows:
        """Rows gathered on the host and sent to a replica's device."""
        found, values = {}, self.store.values[rank]
        for table in self.store.tables:
            name = table.variable.name
            flat = ids.host[name].reshape(-1)
            gathered = self._room(rank, name, flat.numel())
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


class HostStore(Store):
    """Variables in host memory; each process merges and updates its share of all."""

    def __init__(
        self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]
    ) -> None:
        super().__init__(context, members, shapes)
        slots: Slots = {
            f"gradient-{rank}": (self.total, self.devices.dtype) for rank in range(self.replicas)
        }
        self.capacity = dict(context.capacity)
        for table in self.tables:
            slots |= self._row_slots(table)
        self.host = HostMasters(context, self, slots)
        for rank in self.ranks:
            self.host.memory.lock(self.host.tensors[f"gradient-{rank}"])
        for table in self.tables:
            self._lock_rows(table)
        self._share_work()

    def _row_slots(self, table: Assigned) -> Slots:
        """Create the memory to which one table's look-ups of all replicas are pushed."""
        name, width = table.variable.name, table.variable.shape[1]
        rows, slots = self.capacity[name], Slots()
        for rank in range(self.replicas):
            slots[f"ids-{name}-{rank}"] = (rows, torch.int64)
            slots[f"rows-{name}-{rank}"] = (rows * width, self.devices.dtype)
        return slots

    def _lock_rows(self, table: Assigned) -> None:
        for rank in self.ranks:
            self.host.memory.lock(self.host.tensors[f"rows-{table.variable.name}-{rank}"])

    def start(self, ids: Mapping[int, Ids], counts: Sequence[Mapping[str, int]]) -> None:
        """As of any store. All processes make room where a replica looks up more than before."""
        super().start(ids, counts)
        for table in self.tables:
            name = table.variable.name
            most = max(count.get(name, 0) for count in counts)
            if most > self.capacity[name]:
                self.capacity[name] = max(most, 2 * self.capacity[name])
                self.host.tensors |= self.host.memory.tensors(self._row_slots(table))
                self._lock_rows(table)

    def _slot(self, table: Assigned, rank: int, count: int) -> tuple[Tensor, Tensor]:
        """Ids [count] and row gradients [count, width] that `rank` pushed."""
        name, width = table.variable.name, table.variable.shape[1]
        rows = self.host.tensors[f"rows-{name}-{rank}"].view(-1, width)
        return self.host.tensors[f"ids-{name}-{rank}"][:count], rows[:count]

    def _share_work(self) -> None:
        """Take this process's stretch of dense variables and range of each table's rows."""
        processes, process = self.devices.processes, self.devices.process
        self.part = slice(*bounds(self.total, processes, process))
        dense = nn.Parameter(self.host.dense[self.part])
        dense.grad = self.merged = torch.zeros_like(dense)
        parameters = [dense]
        self.ranges: dict[str, tuple[slice, Tensor]] = {}
        for table in self.tables:
            rows = slice(*bounds(table.variable.shape[0], processes, process))
            parameter = nn.Parameter(self.host.table(table)[rows])
            parameter.grad = torch.zeros_like(parameter)
            self.ranges[table.variable.name] = (rows, parameter.grad)
            parameters.append(parameter)
        parameters = [parameter for parameter in parameters if parameter.numel()]
        self.optimizer = make_optimizer(self.context.rule, parameters) if parameters else None

    def bring(self, rank: int, ids: Ids) -> Rows:
        self.wire.to_device(self.values[rank], self.host.dense)
        return self.host.look_up(rank, ids)

    def collect(self, ids: Mapping[int, Ids], rows: Mapping[int, Rows]) -> None:
        for rank, own in rows.items():
            self.wire.to_host(self.host.tensors[f"gradient-{rank}"], self.gradients[rank])
            for table in self.tables:
                flat = ids[rank].host[table.variable.name].reshape(-1)
                gradient = gradient_of(own, table)
                slot_ids, slot_rows = self._slot(table, rank, flat.numel())
                slot_ids.copy_(flat)
                self.wire.to_host(slot_rows, gradient)
        self.devices.synchronise()
        self.host.barrier.wait()

    def update(self) -> None:
        with phase("merge", host=True):
            self._reduce()
        if self.optimizer:
            with phase("update", host=True):
                self.optimizer.step()
        self.host.barrier.wait()

    def _reduce(self) -> None:
        self.merged.copy_(self.host.tensors["gradient-0"][self.part])
        for rank in range(1, self.replicas):
            self.merged += self.host.tensors[f"gradient-{rank}"][self.part]
        for table in self.tables:
            rows, merged = self.ranges[table.variable.name]
            merged.zero_()
            for rank in range(self.replicas):
                ids, gradient = self._slot(table, rank, self.counts[rank][table.variable.name])
                if self.devices.processes > 1:
                    mine = ((ids >= rows.start) & (ids < rows.stop)).nonzero().squeeze(1)
                    ids, gradient = ids[mine] - rows.start, gradient[mine]
                merged.index_add_(0, ids, gradient)

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        if rank == 0:
            yield from self.host.values()

    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        return [self.optimizer] if self.optimizer and rank == self.ranks[0] else []


class StagedHostStore(HostStore):
    """Variables in host memory, fetched a step ahead (`device_store`) on their own stream."""

    def __init__(
        self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]
    ) -> None:
        super().__init__(context, members, shapes)
        self.fetched = self.values[context.rank].clone()
        self.side = torch.cuda.Stream(context.device.torch) if context.device.cuda else None

    def bring(self, rank: int, ids: Ids) -> Rows:
        """Compute with what is here, and fetch the next values until `collect`."""
        self.values[rank].copy_(self.fetched)
        if self.side is not None:
            self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side) if self.side is not None else contextlib.nullcontext():
            self.wire.to_device(self.fetched, self.host.dense)
        return {}
