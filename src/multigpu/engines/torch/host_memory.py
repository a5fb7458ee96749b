"""Variables whose masters live in host memory that all replicas of a Run share."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from multigpu.engines.torch.shared import HostBarrier, SharedMemory
from multigpu.engines.torch.stores import Ids
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context
from multigpu.engines.torch.variables import strided_view
from multigpu.engines.torch.wire import Wire
from multigpu.placements.traffic import Assigned

Slots = dict[str, tuple[int, torch.dtype]]


class HostMasters:
    """Dense variables in one flat stretch, tables beside it, and whatever else a store keeps there (`slots`).

    Raises:
        OSError: host memory does not suffice.
    """

    def __init__(self, context: Context, values: Tensor, tables: list[Assigned], slots: Slots) -> None:
        self.tables = tables
        dtype = values.dtype
        sizes: Slots = {"barrier": (context.replicas, torch.int64), "dense": (values.numel(), dtype), **slots}
        for table in tables:
            sizes[f"table-{table.variable.name}"] = (table.variable.elements, dtype)
        self.memory = SharedMemory(context.shared, context.rank, context.device.cuda)
        context.closing.callback(self.memory.close)  # unlocks the pages; the memory goes with its last user
        self.tensors = self.memory.tensors(sizes)
        self.barrier = HostBarrier(self.tensors["barrier"], context.rank, context.timeout_s)
        self.dense = self.tensors["dense"]
        self.lock(self.dense)
        # rows are gathered here on their way to the device
        self.outgoing = {
            t.variable.name: torch.empty(
                context.capacity[t.variable.name], t.variable.shape[1], dtype=dtype, pin_memory=context.device.cuda
            )
            for t in tables
        }

    def lock(self, tensor: Tensor) -> None:
        """Page-lock what this replica copies to or from its device."""
        self.memory.lock(tensor)

    def table(self, table: Assigned) -> Tensor:
        """A table's master, [rows, width]."""
        return self.tensors[f"table-{table.variable.name}"].view(table.variable.shape)

    def look_up(self, wire: Wire, ids: Ids, like: Tensor) -> dict[str, Tensor]:
        """Rows gathered on the host and sent to the device of `like`, as leaves that collect gradients."""
        found = {}
        for table in self.tables:
            name, width = table.variable.name, table.variable.shape[1]
            flat = ids.host[name].reshape(-1)
            gathered = self.outgoing[name][: flat.numel()]
            with phase("pull", host=True):
                torch.index_select(self.table(table), 0, flat, out=gathered)
            rows = torch.empty(flat.numel(), width, device=like.device, dtype=like.dtype)
            wire.to_device(rows, gathered)
            found[name] = rows.view(*ids.host[name].shape, width).requires_grad_()
        return found

    def values(self, dense: list[Assigned], views: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Every variable by name, dense ones with the shapes and strides of `views`."""
        start = 0
        for member in dense:
            end = start + member.variable.elements
            yield member.variable.name, strided_view(self.dense[start:end], views[member.variable.name])
            start = end
        for table in self.tables:
            yield table.variable.name, self.table(table)
