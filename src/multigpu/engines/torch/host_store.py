"""A parameter server in host memory, its work shared among the replicas' processes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.host_memory import HostMasters, Slots
from multigpu.engines.torch.stores import STORES, Ids, Store
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context
from multigpu.engines.torch.variables import make_optimizer
from multigpu.placements.partition import bounds
from multigpu.placements.traffic import Assigned


class HostStore(Store):
    """Variables in host memory, merged and updated there.

    Every replica owns a slot that receives its gradients. After a barrier each process merges and updates its share of
    every variable (the rules are element-wise, so shares are exact), so all cores that the Run may use work.
    """

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        super().__init__(context, members, shapes)
        dtype, total = context.device.dtype, self.values.numel()
        slots: Slots = {}
        for rank in range(self.replicas):
            slots[f"gradient-{rank}"] = (total, dtype)
            for table in self.tables:
                name, capacity = table.variable.name, context.capacity[table.variable.name]
                slots[f"ids-{name}-{rank}"] = (capacity, torch.int64)
                slots[f"rows-{name}-{rank}"] = (capacity * table.variable.shape[1], dtype)
        self.host = HostMasters(context, self.values, self.tables, slots)
        self.host.lock(self.host.tensors[f"gradient-{self.rank}"])
        for table in self.tables:
            self.host.lock(self.host.tensors[f"rows-{table.variable.name}-{self.rank}"])
        if self.rank == 0:
            self.host.dense.copy_(self.values)
            for table in self.tables:
                self.host.table(table).copy_(self.initial(table))
            context.device.synchronise()
        self.host.barrier.wait()
        self._share_work(context)

    def _slot(self, table: Assigned, rank: int, count: int) -> tuple[Tensor, Tensor]:
        """Ids [count] and row gradients [count, width] that `rank` pushed."""
        name, width = table.variable.name, table.variable.shape[1]
        rows = self.host.tensors[f"rows-{name}-{rank}"].view(-1, width)
        return self.host.tensors[f"ids-{name}-{rank}"][:count], rows[:count]

    def _share_work(self, context: Context) -> None:
        """This process's part of the update: a stretch of the dense variables and a range of each table's rows."""
        parameters = []
        self.part = slice(*bounds(self.values.numel(), self.replicas, self.rank))
        dense = nn.Parameter(self.host.dense[self.part])
        dense.grad = torch.zeros_like(dense)
        if dense.numel():
            parameters.append(dense)
        self.merged = dense.grad
        self.ranges: dict[str, tuple[slice, Tensor]] = {}
        for table in self.tables:
            rows = slice(*bounds(table.variable.shape[0], self.replicas, self.rank))
            parameter = nn.Parameter(self.host.table(table)[rows])
            parameter.grad = torch.zeros_like(parameter)
            self.ranges[table.variable.name] = (rows, parameter.grad)
            if parameter.numel():
                parameters.append(parameter)
        self.optimizer = make_optimizer(context.rule, parameters) if parameters else None

    def pull(self) -> None:
        self.wire.to_device(self.values, self.host.dense)

    def look_up(self, shard: Shard, ids: Ids) -> dict[str, Tensor]:
        return self.host.look_up(self.wire, ids, self.values)

    def push(self, shard: Shard, ids: Ids, rows: dict[str, Tensor]) -> None:
        self.wire.to_host(self.host.tensors[f"gradient-{self.rank}"], self.gradients)
        for table in self.tables:
            gradient = rows[table.variable.name].grad
            assert gradient is not None
            flat = ids.host[table.variable.name].reshape(-1)
            slot_ids, slot_rows = self._slot(table, self.rank, flat.numel())
            slot_ids.copy_(flat)
            self.wire.to_host(slot_rows, gradient.reshape(-1, table.variable.shape[1]))
        self.context.device.synchronise()
        self.host.barrier.wait()

    def update(self, shard: Shard) -> None:
        with phase("merge", host=True):
            self._merge(shard)
        if self.optimizer:
            with phase("update", host=True):
                self.optimizer.step()
        self.host.barrier.wait()

    def _merge(self, shard: Shard) -> None:
        """Add up this process's share of all replicas' gradients."""
        self.merged.copy_(self.host.tensors["gradient-0"][self.part])
        for rank in range(1, self.replicas):
            self.merged += self.host.tensors[f"gradient-{rank}"][self.part]
        for table in self.tables:
            rows, merged = self.ranges[table.variable.name]
            merged.zero_()
            for rank in range(self.replicas):
                ids, gradient = self._slot(table, rank, shard.batch.lookups[rank][table.variable.name])
                if self.replicas > 1:
                    mine = ((ids >= rows.start) & (ids < rows.stop)).nonzero().squeeze(1)
                    ids, gradient = ids[mine] - rows.start, gradient[mine]
                merged.index_add_(0, ids, gradient)

    def owned(self) -> Iterator[tuple[str, Tensor]]:
        if self.rank == 0:
            yield from self.host.values(self.dense, self.views)


STORES[True, True] = HostStore
