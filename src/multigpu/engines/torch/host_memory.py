"""Variables whose masters live in host memory that all replicas of a Run share."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from multigpu.engines.torch.shared import HostBarrier, SharedMemory
from multigpu.engines.torch.stores import Ids, Store, leaf
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Rows
from multigpu.engines.torch.variables import strided_view
from multigpu.placements.traffic import Assigned

Slots = dict[str, tuple[int, torch.dtype]]


class HostMasters:
    """A store's dense variables in one flat stretch, its tables beside it, and whatever else it keeps there (`slots`).

    Page-locked is what every replica copies. One process has the same memory, though it shares it with none: the two can be compared.

    Raises:
        OSError: host memory does not suffice.
    """

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
        """A table's master, [rows, width]."""
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
        start = 0
        for member in self.store.dense:
            end = start + member.variable.elements
            yield member.variable.name, strided_view(self.dense[start:end], self.store.views[self.store.ranks[0]][member.variable.name])
            start = end
        for table in self.store.tables:
            yield table.variable.name, self.table(table)
