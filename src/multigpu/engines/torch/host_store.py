"""A parameter server in host memory, its work shared among the replicas' processes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.shared import HostBarrier, SharedMemory
from multigpu.engines.torch.stores import STORES, Store
from multigpu.engines.torch.trainer import Context
from multigpu.engines.torch.variables import make_optimizer, strided_view
from multigpu.placements.traffic import Assigned


def share(length: int, rank: int, replicas: int) -> slice:
    """The part of `length` items that `rank` works on; the first parts take the remainder."""
    size, rest = divmod(length, replicas)
    start = rank * size + min(rank, rest)
    return slice(start, start + size + (rank < rest))


class HostStore(Store):
    """Variables in host memory, merged and updated there.

    Every replica owns a slot that receives its gradients. After a barrier each process merges and updates its share of
    every variable (the rules are element-wise, so shares are exact), so all cores that the Run may use work.
    """

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        super().__init__(context, members, shapes)
        dtype, total = context.device.dtype, self.values.numel()
        sizes: dict[str, tuple[int, torch.dtype]] = {"barrier": (self.replicas, torch.int64), "dense": (total, dtype)}
        for rank in range(self.replicas):
            sizes[f"gradient-{rank}"] = (total, dtype)
        for table in self.tables:
            name, (rows, width) = table.variable.name, table.variable.shape
            sizes[f"table-{name}"] = (rows * width, dtype)
            for rank in range(self.replicas):
                sizes[f"ids-{name}-{rank}"] = (context.capacity[name], torch.int64)
                sizes[f"rows-{name}-{rank}"] = (context.capacity[name] * width, dtype)
        self.memory = SharedMemory(context.shared, self.rank, context.device.cuda)
        self.host = self.memory.tensors(sizes)
        self.barrier = HostBarrier(self.host["barrier"], self.rank, context.timeout_s)
        self.outgoing = {
            t.variable.name: torch.empty(
                context.capacity[t.variable.name], t.variable.shape[1], dtype=dtype, pin_memory=context.device.cuda
            )
            for t in self.tables
        }
        for tensor in (self.host["dense"], self.host[f"gradient-{self.rank}"]):
            self.memory.lock(tensor)
        for table in self.tables:
            self.memory.lock(self.host[f"rows-{table.variable.name}-{self.rank}"])
        if self.rank == 0:
            self.host["dense"].copy_(self.values)
            for table in self.tables:
                self._table(table).copy_(self.initial(table))
            context.device.synchronise()
        self.barrier.wait()
        self._share_work(context)

    def _table(self, table: Assigned) -> Tensor:
        return self.host[f"table-{table.variable.name}"].view(table.variable.shape)

    def _slot(self, table: Assigned, rank: int, count: int) -> tuple[Tensor, Tensor]:
        """Ids [count] and row gradients [count, width] that `rank` pushed."""
        name, width = table.variable.name, table.variable.shape[1]
        rows = self.host[f"rows-{name}-{rank}"].view(-1, width)
        return self.host[f"ids-{name}-{rank}"][:count], rows[:count]

    def _share_work(self, context: Context) -> None:
        """This process's part of the update: a stretch of the dense variables and a range of each table's rows."""
        parameters = []
        self.part = share(self.values.numel(), self.rank, self.replicas)
        dense = nn.Parameter(self.host["dense"][self.part])
        dense.grad = torch.zeros_like(dense)
        if dense.numel():
            parameters.append(dense)
        self.merged = dense.grad
        self.ranges: dict[str, tuple[slice, Tensor]] = {}
        for table in self.tables:
            rows = share(table.variable.shape[0], self.rank, self.replicas)
            parameter = nn.Parameter(self._table(table)[rows])
            parameter.grad = torch.zeros_like(parameter)
            self.ranges[table.variable.name] = (rows, parameter.grad)
            if parameter.numel():
                parameters.append(parameter)
        self.optimizer = make_optimizer(context.rule, parameters) if parameters else None

    def pull(self) -> None:
        self.wire.to_device(self.values, self.host["dense"])

    def look_up(self, shard: Shard, ids: dict[str, Tensor]) -> dict[str, Tensor]:
        found = {}
        for table in self.tables:
            name, width = table.variable.name, table.variable.shape[1]
            flat = ids[name].reshape(-1)
            gathered = self.outgoing[name][: flat.numel()]
            torch.index_select(self._table(table), 0, flat, out=gathered)
            rows = torch.empty(flat.numel(), width, device=self.values.device, dtype=self.values.dtype)
            self.wire.to_device(rows, gathered)
            found[name] = rows.view(*ids[name].shape, width).requires_grad_()
        return found

    def push(self, shard: Shard, ids: dict[str, Tensor], rows: dict[str, Tensor]) -> None:
        self.wire.to_host(self.host[f"gradient-{self.rank}"], self.gradients)
        for table in self.tables:
            gradient = rows[table.variable.name].grad
            assert gradient is not None
            flat = ids[table.variable.name].reshape(-1)
            slot_ids, slot_rows = self._slot(table, self.rank, flat.numel())
            slot_ids.copy_(flat)
            self.wire.to_host(slot_rows, gradient.reshape(-1, table.variable.shape[1]))
        self.context.device.synchronise()
        self.barrier.wait()

    def update(self, shard: Shard) -> None:
        self.merged.copy_(self.host["gradient-0"][self.part])
        for rank in range(1, self.replicas):
            self.merged += self.host[f"gradient-{rank}"][self.part]
        for table in self.tables:
            rows, merged = self.ranges[table.variable.name]
            merged.zero_()
            for rank in range(self.replicas):
                ids, gradient = self._slot(table, rank, shard.batch.lookups[rank][table.variable.name])
                if self.replicas > 1:
                    mine = ((ids >= rows.start) & (ids < rows.stop)).nonzero().squeeze(1)
                    ids, gradient = ids[mine] - rows.start, gradient[mine]
                merged.index_add_(0, ids, gradient)
        if self.optimizer:
            self.optimizer.step()
        self.barrier.wait()

    def owned(self) -> Iterator[tuple[str, Tensor]]:
        if self.rank == 0:
            start = 0
            for member in self.dense:
                end = start + member.variable.elements
                yield member.variable.name, strided_view(self.host["dense"][start:end], self.views[member.variable.name])
                start = end
            for table in self.tables:
                yield table.variable.name, self._table(table)

    def close(self) -> None:
        self.memory.close()


STORES[True, True] = HostStore
