"""A parameter server in host memory, its work shared among the processes of a Run."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from multigpu.engines.torch.host_memory import HostMasters, Slots
from multigpu.engines.torch.stores import Ids, Store, gradient_of
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Rows
from multigpu.engines.torch.variables import make_optimizer
from multigpu.placements.partition import bounds
from multigpu.placements.traffic import Assigned


class HostStore(Store):
    """Variables in host memory. Each replica fills a slot with gradients; each process merges and updates its share of all variables."""

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        super().__init__(context, members, shapes)
        dtype = self.devices.dtype
        slots: Slots = {}
        for rank in range(self.replicas):
            slots[f"gradient-{rank}"] = (self.total, dtype)
            for table in self.tables:
                name, capacity = table.variable.name, context.capacity[table.variable.name]
                slots[f"ids-{name}-{rank}"] = (capacity, torch.int64)
                slots[f"rows-{name}-{rank}"] = (capacity * table.variable.shape[1], dtype)
        self.host = HostMasters(context, self, slots)
        for rank in self.ranks:
            for slot in (f"gradient-{rank}", *(f"rows-{table.variable.name}-{rank}" for table in self.tables)):
                self.host.memory.lock(self.host.tensors[slot])
        self._share_work()

    def _slot(self, table: Assigned, rank: int, count: int) -> tuple[Tensor, Tensor]:
        """Ids [count] and row gradients [count, width] that `rank` pushed."""
        name, width = table.variable.name, table.variable.shape[1]
        rows = self.host.tensors[f"rows-{name}-{rank}"].view(-1, width)
        return self.host.tensors[f"ids-{name}-{rank}"][:count], rows[:count]

    def _share_work(self) -> None:
        """This process's part of the update: a stretch of the dense variables and a range of each table's rows."""
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
                flat, gradient = ids[rank].host[table.variable.name].reshape(-1), gradient_of(own, table)
                slot_ids, slot_rows = self._slot(table, rank, flat.numel())
                slot_ids.copy_(flat)
                self.wire.to_host(slot_rows, gradient)
        self.devices.synchronise()
        self.host.barrier.wait()

    def update(self) -> None:
        with phase("merge", host=True):
            self._merge()
        if self.optimizer:
            with phase("update", host=True):
                self.optimizer.step()
        self.host.barrier.wait()

    def _merge(self) -> None:
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
    """Variables in host memory, fetched a step ahead (see `device_store`) on a stream of their own while the device computes."""

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        super().__init__(context, members, shapes)
        self.fetched = self.values[context.rank].clone()
        self.side = torch.cuda.Stream(context.device.torch) if context.device.cuda else None

    def bring(self, rank: int, ids: Ids) -> Rows:
        """Compute with what is here, and fetch the next values. `collect` waits for all of the device's streams."""
        self.values[rank].copy_(self.fetched)
        if self.side is not None:
            self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side) if self.side is not None else contextlib.nullcontext():
            self.wire.to_device(self.fetched, self.host.dense)
        return {}
