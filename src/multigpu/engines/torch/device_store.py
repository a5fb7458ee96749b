"""Parameter servers whose updates run on GPUs, each variable on one owner; masters live there too, or in host memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from multigpu.engines.torch.alignment import parts_by_place
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.host_memory import HostMasters
from multigpu.engines.torch.stores import STORES, Ids, Store
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context
from multigpu.engines.torch.variables import make_optimizer
from multigpu.placements.traffic import Assigned


class DeviceStore(Store):
    """Variables that live on GPUs, each whole on one owner, and are merged and updated there.

    What one owner holds of the dense variables lies together, so it is one message; the owner's own stretch is the master.
    """

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        super().__init__(context, members, shapes)
        self.segments = parts_by_place(self.dense, self.replicas)
        self.mine = self.segments[self.rank]
        self.peers = [rank for rank in range(self.replicas) if rank != self.rank]
        self.received = [torch.empty_like(self.gradients[self.mine]) for _ in self.peers]
        self.masters: dict[str, nn.Parameter] = {}
        parameters = []
        if self.values[self.mine].numel():
            master = nn.Parameter(self.values[self.mine])
            master.grad = self.gradients[self.mine]
            parameters.append(master)
        for table in self.tables:
            if table.update == self.rank:
                parameter = nn.Parameter(self.initial(table))
                parameter.grad = torch.zeros_like(parameter)
                self.masters[table.variable.name] = parameter
                parameters.append(parameter)
        self.optimizer = make_optimizer(context.rule, parameters, context.captured) if parameters else None
        self.asked: dict[tuple[str, int], Tensor] = {}

    def pull(self) -> None:
        own = self.values[self.mine]
        self.wire.exchange([(peer, own) for peer in self.peers], [(peer, self.values[self.segments[peer]]) for peer in self.peers])

    def _rows_of(self, shard: Shard, table: Assigned, rank: int) -> int:
        return shard.batch.lookups[rank].get(table.variable.name, 0)

    def _send_ids(self, shard: Shard, ids: Ids) -> dict[str, Tensor]:
        """Tell every table's owner which rows each replica works with. Returns this replica's own, flat."""
        flat = {t.variable.name: ids.device[t.variable.name].reshape(-1) for t in self.tables}
        sends, receives = [], []
        for table in self.tables:
            name = table.variable.name
            self.asked[name, self.rank] = flat[name]
            if table.update != self.rank:
                sends.append((table.update, flat[name]))
                continue
            for peer in self.peers:
                count = self._rows_of(shard, table, peer)
                self.asked[name, peer] = torch.empty(count, device=self.values.device, dtype=torch.int64)
                receives.append((peer, self.asked[name, peer]))
        self.wire.exchange(sends, receives)
        return flat

    def look_up(self, shard: Shard, ids: Ids) -> dict[str, Tensor]:
        flat = self._send_ids(shard, ids)
        rows: dict[str, Tensor] = {}
        sends, receives = [], []
        for table in self.tables:
            name, width = table.variable.name, table.variable.shape[1]
            if table.update == self.rank:
                master = self.masters[name].detach()
                rows[name] = master.index_select(0, flat[name])
                sends += [(peer, master.index_select(0, self.asked[name, peer])) for peer in self.peers]
            else:
                rows[name] = torch.empty(flat[name].numel(), width, device=self.values.device, dtype=self.values.dtype)
                receives.append((table.update, rows[name]))
        self.wire.exchange(sends, receives)
        return {name: value.view(*ids.device[name].shape, -1).requires_grad_() for name, value in rows.items()}

    def push(self, shard: Shard, ids: Ids, rows: dict[str, Tensor]) -> None:
        sends: list[tuple[int, Tensor]] = [(peer, self.gradients[self.segments[peer]]) for peer in self.peers]
        receives: list[tuple[int, Tensor]] = list(zip(self.peers, self.received, strict=True))
        self.row_gradients: list[tuple[str, Tensor, Tensor]] = []
        for table in self.tables:
            name, width = table.variable.name, table.variable.shape[1]
            own = rows[name].grad
            assert own is not None
            if table.update != self.rank:
                sends.append((table.update, own.reshape(-1, width)))
                continue
            self.row_gradients.append((name, self.asked[name, self.rank], own.reshape(-1, width)))
            for peer in self.peers:
                buffer = torch.empty(self._rows_of(shard, table, peer), width, device=own.device, dtype=own.dtype)
                self.row_gradients.append((name, self.asked[name, peer], buffer))
                receives.append((peer, buffer))
        self.wire.exchange(sends, receives)
        for received in self.received:
            self.gradients[self.mine] += received

    def update(self, shard: Shard) -> None:
        with phase("merge"):
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
            if member.update == self.rank:
                yield member.variable.name, self.views[member.variable.name]
        yield from self.masters.items()


class MirrorStore(DeviceStore):
    """Variables that live in host memory and are updated on GPUs (document 000's Exp1 as its table says it).

    The owner works on its copy of a variable, which a pull has just brought (tables are fetched whole), and writes the
    result back to the host, where the next step's pulls and look-ups find it.
    """

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        super().__init__(context, members, shapes)
        self.host = HostMasters(context, self.values, self.tables, slots={})
        if self.rank == 0:
            self.host.dense.copy_(self.values)
            for table in self.tables:
                self.host.table(table).copy_(self.initial(table))
            context.device.synchronise()
        for table in self.tables:
            if table.update == self.rank:
                self.host.lock(self.host.table(table))
        self.host.barrier.wait()

    def pull(self) -> None:
        self.wire.to_device(self.values, self.host.dense)

    def look_up(self, shard: Shard, ids: Ids) -> dict[str, Tensor]:
        return self.host.look_up(self.wire, ids, self.values)

    def push(self, shard: Shard, ids: Ids, rows: dict[str, Tensor]) -> None:
        self._send_ids(shard, ids)
        super().push(shard, ids, rows)

    def update(self, shard: Shard) -> None:
        owned = [table for table in self.tables if table.update == self.rank]
        for table in owned:
            self.wire.to_device(self.masters[table.variable.name].detach(), self.host.table(table))
        super().update(shard)
        if self.values[self.mine].numel():
            self.wire.to_host(self.host.dense[self.mine], self.values[self.mine])
        for table in owned:
            self.wire.to_host(self.host.table(table), self.masters[table.variable.name].detach())
        self.context.device.synchronise()
        self.host.barrier.wait()

    def owned(self) -> Iterator[tuple[str, Tensor]]:
        if self.rank == 0:
            yield from self.host.values(self.dense, self.views)


STORES[False, False] = DeviceStore
STORES[True, False] = MirrorStore
