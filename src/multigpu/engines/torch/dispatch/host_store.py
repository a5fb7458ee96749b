"""A parameter server in host memory whose merging and updating is one thread's, and that of the library's threads behind it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from multigpu.engines.torch.dispatch.host_masters import HostMasters, Slots
from multigpu.engines.torch.dispatch.stores import STORES, Store, gradient_of
from multigpu.engines.torch.dispatch.trainer import Context, Rows
from multigpu.engines.torch.stores import Ids
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.variables import make_optimizer
from multigpu.placements.traffic import Assigned


class HostStore(Store):
    """Variables in host memory, merged and updated there. Every replica has a slot that receives its gradients."""

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        super().__init__(context, members, shapes)
        dtype = self.devices.dtype
        slots: Slots = {f"gradient-{rank}": (self.total, dtype) for rank in range(self.replicas)}
        for table in self.tables:
            name, width = table.variable.name, table.variable.shape[1]
            slots |= {f"rows-{name}-{rank}": (context.capacity[name] * width, dtype) for rank in range(self.replicas)}
        self.host = HostMasters(context, self, slots)
        self.slots = [self.host.tensors[f"gradient-{rank}"] for rank in range(self.replicas)]
        parameters = []
        self.merged = torch.zeros_like(self.host.dense)
        if self.total:
            dense = nn.Parameter(self.host.dense)
            dense.grad = self.merged
            parameters.append(dense)
        self.merged_tables: dict[str, Tensor] = {}
        for table in self.tables:
            parameter = nn.Parameter(self.host.table(table))
            parameter.grad = self.merged_tables[table.variable.name] = torch.zeros_like(parameter)
            parameters.append(parameter)
        self.optimizer = make_optimizer(context.rule, parameters)
        self.ids: list[Ids] = []

    def _slot(self, table: Assigned, rank: int, count: int) -> Tensor:
        """Gradients of the `count` rows that replica `rank` looked up."""
        return self.host.tensors[f"rows-{table.variable.name}-{rank}"].view(-1, table.variable.shape[1])[:count]

    def bring(self, rank: int, ids: Ids) -> Rows:
        self.wire.to_device(self.values[rank], self.host.dense)
        return self.host.look_up(rank, ids, self.values[rank])

    def collect(self, ids: list[Ids], rows: list[Rows]) -> None:
        self.ids = ids
        for rank, own in enumerate(rows):
            self.wire.to_host(self.slots[rank], self.gradients[rank])
            for table in self.tables:
                gradient = gradient_of(own, table)
                self.wire.to_host(self._slot(table, rank, len(gradient)), gradient)
        self.devices.synchronise()

    def update(self) -> None:
        with phase("merge", host=True):
            self._merge()
        with phase("update", host=True):
            self.optimizer.step()

    def _merge(self) -> None:
        """Add up all replicas' gradients."""
        self.merged.copy_(self.slots[0])
        for slot in self.slots[1:]:
            self.merged += slot
        for table in self.tables:
            merged = self.merged_tables[table.variable.name].zero_()
            for rank, ids in enumerate(self.ids):
                flat = ids.host[table.variable.name].reshape(-1)
                merged.index_add_(0, flat, self._slot(table, rank, flat.numel()))

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        if rank == 0:
            yield from self.host.values()

    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        return [] if rank else [self.optimizer]


STORES[True, True] = HostStore
