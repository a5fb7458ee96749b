"""Where variables live when replicas do not keep them: what a parameter server is made of.

A store holds some variables' master copies, sends them to replicas (`pull`, `look_up`), takes gradients back (`push`),
merges them and updates (`update`). All replicas call the same methods in the same order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.trainer import Context
from multigpu.engines.torch.variables import initial_value, make_optimizer, strided_view
from multigpu.placements.traffic import Assigned


class Store(ABC):
    """Variables of one kind of home.

    values, gradients: this replica's copies of the dense variables and of their gradients, two flat stretches of its
        device; `views` are the variables in the first, by name, with the module's shapes and strides.
    """

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        self.context, self.wire, self.rank, self.replicas = context, context.wire, context.rank, context.replicas
        self.dense = self.order([m for m in members if not m.by_row])
        self.tables = [m for m in members if m.by_row]
        device, dtype = context.device.torch, context.device.dtype
        total = sum(m.variable.elements for m in self.dense)
        self.values = torch.zeros(total, device=device, dtype=dtype)
        self.gradients = torch.zeros(total, device=device, dtype=dtype)
        self.views: dict[str, Tensor] = {}
        self.gradient_views: dict[str, Tensor] = {}
        start = 0
        for member in self.dense:
            end = start + member.variable.elements
            like = shapes[member.variable.name]
            self.views[member.variable.name] = strided_view(self.values[start:end], like)
            self.gradient_views[member.variable.name] = strided_view(self.gradients[start:end], like)
            self.views[member.variable.name].copy_(self.initial(member))
            start = end

    def order(self, dense: list[Assigned]) -> list[Assigned]:
        """The order of dense variables in flat memory."""
        return dense

    def initial(self, member: Assigned) -> Tensor:
        """The variable's first value, on this replica's device."""
        index = [v.name for v in self.context.model.variables].index(member.variable.name)
        return initial_value(member.variable, index, self.context.run.seed, self.context.device.torch, self.context.device.dtype)

    @abstractmethod
    def pull(self) -> None:
        """Bring the dense variables' current values to this replica."""

    @abstractmethod
    def look_up(self, shard: Shard, ids: dict[str, Tensor]) -> dict[str, Tensor]:
        """Rows of this store's tables for `ids` (of any shape; on the device or the host as the shard has them).

        Returns by name leaf tensors [*ids.shape, width] on this replica's device, ready to collect a gradient.
        """

    @abstractmethod
    def push(self, shard: Shard, ids: dict[str, Tensor], rows: dict[str, Tensor]) -> None:
        """Send this replica's gradients: the dense ones, and those of `rows`."""

    @abstractmethod
    def update(self, shard: Shard) -> None:
        """Merge all replicas' gradients and apply the rule, where the placement says."""

    @abstractmethod
    def owned(self) -> Iterator[tuple[str, Tensor]]:
        """Master copies on this replica (host memory counts as rank 0's)."""

    def close(self) -> None:  # noqa: B027
        """Give back what outlives Python's own memory."""


class DeviceStore(Store):
    """Variables that live on GPUs, each whole on one owner, and are merged and updated there.

    Dense variables are ordered by owner, so what one owner holds is one message; the owner's own stretch is the master.
    """

    def order(self, dense: list[Assigned]) -> list[Assigned]:
        return sorted(dense, key=lambda member: member.home)

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        super().__init__(context, members, shapes)
        lengths = [sum(m.variable.elements for m in self.dense if m.home == rank) for rank in range(self.replicas)]
        starts = [sum(lengths[:rank]) for rank in range(self.replicas)]
        self.segments = [slice(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        self.peers = [rank for rank in range(self.replicas) if rank != self.rank]
        mine = self.segments[self.rank]
        self.received = [torch.empty_like(self.gradients[mine]) for _ in self.peers]
        self.masters: dict[str, nn.Parameter] = {}
        parameters = []
        if lengths[self.rank]:
            master = nn.Parameter(self.values[mine])
            master.grad = self.gradients[mine]
            parameters.append(master)
        for table in self.tables:
            if table.home == self.rank:
                parameter = nn.Parameter(self.initial(table))
                parameter.grad = torch.zeros_like(parameter)
                self.masters[table.variable.name] = parameter
                parameters.append(parameter)
        self.optimizer = make_optimizer(context.rule, parameters) if parameters else None
        self.asked: dict[tuple[str, int], Tensor] = {}

    def pull(self) -> None:
        mine = self.values[self.segments[self.rank]]
        self.wire.exchange([(peer, mine) for peer in self.peers], [(peer, self.values[self.segments[peer]]) for peer in self.peers])

    def _rows_of(self, shard: Shard, table: Assigned, rank: int) -> int:
        return shard.batch.lookups[rank].get(table.variable.name, 0)

    def look_up(self, shard: Shard, ids: dict[str, Tensor]) -> dict[str, Tensor]:
        device, dtype = self.context.device.torch, self.context.device.dtype
        flat = {t.variable.name: ids[t.variable.name].reshape(-1) for t in self.tables}
        sends, receives = [], []
        for table in self.tables:
            name = table.variable.name
            self.asked[name, self.rank] = flat[name]
            if table.home != self.rank:
                sends.append((table.home, flat[name]))
                continue
            for peer in self.peers:
                self.asked[name, peer] = torch.empty(self._rows_of(shard, table, peer), device=device, dtype=torch.int64)
                receives.append((peer, self.asked[name, peer]))
        self.wire.exchange(sends, receives)
        rows, sends, receives = {}, [], []
        for table in self.tables:
            name, width = table.variable.name, table.variable.shape[1]
            if table.home == self.rank:
                master = self.masters[name].detach()
                rows[name] = master.index_select(0, flat[name])
                sends += [(peer, master.index_select(0, self.asked[name, peer])) for peer in self.peers]
            else:
                rows[name] = torch.empty(flat[name].numel(), width, device=device, dtype=dtype)
                receives.append((table.home, rows[name]))
        self.wire.exchange(sends, receives)
        return {name: value.view(*ids[name].shape, -1).requires_grad_() for name, value in rows.items()}

    def push(self, shard: Shard, ids: dict[str, Tensor], rows: dict[str, Tensor]) -> None:
        mine = self.segments[self.rank]
        sends: list[tuple[int, Tensor]] = [(peer, self.gradients[self.segments[peer]]) for peer in self.peers]
        receives: list[tuple[int, Tensor]] = list(zip(self.peers, self.received, strict=True))
        self.row_gradients: list[tuple[str, Tensor, Tensor]] = []
        for table in self.tables:
            name, width = table.variable.name, table.variable.shape[1]
            own = rows[name].grad
            assert own is not None
            if table.home != self.rank:
                sends.append((table.home, own.reshape(-1, width)))
                continue
            self.row_gradients.append((name, self.asked[name, self.rank], own.reshape(-1, width)))
            for peer in self.peers:
                buffer = torch.empty(self._rows_of(shard, table, peer), width, device=own.device, dtype=own.dtype)
                self.row_gradients.append((name, self.asked[name, peer], buffer))
                receives.append((peer, buffer))
        self.wire.exchange(sends, receives)
        for received in self.received:
            self.gradients[mine] += received

    def update(self, shard: Shard) -> None:
        for parameter in self.masters.values():
            assert parameter.grad is not None
            parameter.grad.zero_()
        for name, index, gradient in self.row_gradients:
            grad = self.masters[name].grad
            assert grad is not None
            grad.index_add_(0, index, gradient)
        if self.optimizer:
            self.optimizer.step()

    def owned(self) -> Iterator[tuple[str, Tensor]]:
        for member in self.dense:
            if member.home == self.rank:
                yield member.variable.name, self.views[member.variable.name]
        yield from self.masters.items()


STORES: dict[tuple[bool, bool], Any] = {}
"""(home is the host, update is on the host) -> the store that does so; filled by the modules that define them."""

STORES[False, False] = DeviceStore
