"""Variables whose masters live in page-locked host memory, and the rows gathered there for each replica."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from multigpu.engines.torch.dispatch.stores import Store, leaf
from multigpu.engines.torch.dispatch.trainer import Context, Rows
from multigpu.engines.torch.shared import SharedMemory
from multigpu.engines.torch.stores import Ids
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.variables import strided_view
from multigpu.placements.traffic import Assigned

Slots = dict[str, tuple[int, torch.dtype]]


class HostMasters:
    """A store's dense variables in one flat stretch, its tables beside it, and whatever else it keeps there (`slots`).

    The same memory as where each replica has a process, though nobody shares it here: so that the two can be compared.

    Raises:
        OSError: host memory does not suffice.
    """

    def __init__(self, context: Context, store: Store, slots: Slots) -> None:
        self.store, self.wire = store, context.wire
        dtype = context.devices.dtype
        sizes: Slots = {"dense": (store.total, dtype), **slots}
        for table in store.tables:
            sizes[f"table-{table.variable.name}"] = (table.variable.elements, dtype)
        self.memory = SharedMemory(context.shared, 0, context.devices.cuda)
        context.closing.callback(self.memory.close)
        self.tensors = self.memory.tensors(sizes)
        for tensor in self.tensors.values():
            self.memory.lock(tensor)
        self.dense = self.tensors["dense"]
        self.dense.copy_(store.values[0])
        for table in store.tables:
            self.table(table).copy_(store.initial(table))
        # rows are gathered here on their way to each device
        self.outgoing = [
            {
                t.variable.name: torch.empty(
                    context.capacity[t.variable.name], t.variable.shape[1], dtype=dtype, pin_memory=context.devices.cuda
                )
                for t in store.tables
            }
            for _ in store.values
        ]

    def table(self, table: Assigned) -> Tensor:
        """A table's master, [rows, width]."""
        return self.tensors[f"table-{table.variable.name}"].view(table.variable.shape)

    def look_up(self, rank: int, ids: Ids, like: Tensor) -> Rows:
        """Rows gathered on the host and sent to replica `rank`'s device, that of `like`."""
        found = {}
        for table in self.store.tables:
            name = table.variable.name
            flat = ids.host[name].reshape(-1)
            gathered = self.outgoing[rank][name][: flat.numel()]
            with phase("pull", host=True):
                torch.index_select(self.table(table), 0, flat, out=gathered)
            rows = torch.empty(gathered.shape, device=like.device, dtype=like.dtype)
            self.wire.to_device(rows, gathered)
            found[name] = leaf(rows, ids.host[name])
        return found

    def values(self) -> Iterator[tuple[str, Tensor]]:
        """Every variable by name, as the module shapes it."""
        start = 0
        for member in self.store.dense:
            end = start + member.variable.elements
            yield member.variable.name, strided_view(self.dense[start:end], self.store.views[0][member.variable.name])
            start = end
        for table in self.store.tables:
            yield table.variable.name, self.table(table)
