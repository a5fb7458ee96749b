"""Parameter servers whose updates run on GPUs, each variable on one owner, dispatched by one thread."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from multigpu.engines.torch.dispatch.devices import Point
from multigpu.engines.torch.dispatch.host_masters import HostMasters
from multigpu.engines.torch.dispatch.stores import STORES, Store, gradient_of, leaf
from multigpu.engines.torch.dispatch.trainer import Context, Rows
from multigpu.engines.torch.dispatch.wire import Copy
from multigpu.engines.torch.stores import Ids
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.variables import make_optimizer
from multigpu.placements.traffic import Assigned


class DeviceStore(Store):
    """Variables that live on GPUs, each whole on one owner, and are merged and updated there.

    An owner's segment of its own values is the master; what it holds travels as one message.
    """

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        super().__init__(context, members, shapes)
        parameters: dict[int, list[nn.Parameter]] = {}
        # [owner][peer]: gradients that an owner receives, by the replica they come from
        self.received: dict[int, dict[int, Tensor]] = {}
        for owner, segment in self.segments.items():
            master = nn.Parameter(self.values[owner][segment])
            master.grad = self.gradients[owner][segment]
            parameters[owner] = [master]
            self.received[owner] = {peer: torch.empty_like(master.grad) for peer in range(self.replicas) if peer != owner}
        self.masters: dict[str, nn.Parameter] = {}
        for table in self.tables:
            parameter = nn.Parameter(self.initial(table))
            parameter.grad = torch.zeros_like(parameter)
            self.masters[table.variable.name] = parameter
            parameters.setdefault(table.update, []).append(parameter)
        self.optimizers = {owner: make_optimizer(context.rule, mine) for owner, mine in parameters.items()}
        # of the current step, by table: each replica's ids and the gradients of its rows on the table's owner, and rows that
        # were looked up there on the replica's device
        self.asked: dict[str, list[Tensor]] = {}
        self.row_gradients: dict[str, list[Tensor]] = {}
        self.found: list[Rows] = []

    def _gathered(self, table: Assigned, own: list[Tensor], copies: list[Copy]) -> list[Tensor]:
        """Where the table's owner will find every replica's tensor, once `copies`, which grow, are done."""
        found = []
        for rank, tensor in enumerate(own):
            if rank == table.update:
                found.append(tensor)
                continue
            target = torch.empty(tensor.shape, dtype=tensor.dtype, device=self.devices.each[table.update].torch)
            copies.append(Copy(rank, tensor, table.update, target))
            found.append(target)
        return found

    def _send_ids(self, ids: list[Ids], copies: list[Copy]) -> None:
        """Tell every table's owner which rows each replica works with."""
        for table in self.tables:
            name = table.variable.name
            self.asked[name] = self._gathered(table, [own.device[name].reshape(-1) for own in ids], copies)

    def start(self, ids: list[Ids]) -> None:
        copies = [
            Copy(owner, self.values[owner][segment], rank, self.values[rank][segment])
            for owner, segment in self.segments.items()
            for rank in range(self.replicas)
            if rank != owner
        ]
        self._send_ids(ids, copies)
        self.wire.copy_all(copies)
        self.found, copies = [{} for _ in ids], []
        for table in self.tables:
            name, master = table.variable.name, self.masters[table.variable.name].detach()
            for rank, asked in enumerate(self.asked[name]):
                rows = master.index_select(0, asked)
                if rank != table.update:
                    source, rows = rows, torch.empty(rows.shape, dtype=rows.dtype, device=self.devices.each[rank].torch)
                    copies.append(Copy(table.update, source, rank, rows))
                self.found[rank][name] = rows
        self.wire.copy_all(copies)

    def bring(self, rank: int, ids: Ids) -> Rows:
        return {name: leaf(rows, ids.device[name]) for name, rows in self.found[rank].items()}

    def collect(self, ids: list[Ids], rows: list[Rows]) -> None:
        copies: list[Copy] = []
        self._collect(rows, copies)
        self.wire.copy_all(copies)

    def _collect(self, rows: list[Rows], copies: list[Copy]) -> None:
        for owner, received in self.received.items():
            for peer, target in received.items():
                copies.append(Copy(peer, self.gradients[peer][self.segments[owner]], owner, target))
        for table in self.tables:
            self.row_gradients[table.variable.name] = self._gathered(table, [gradient_of(own, table) for own in rows], copies)

    def update(self) -> None:
        with phase("merge"):
            self._merge()
        for owner, optimizer in self.optimizers.items():
            with self.devices.at(owner):
                optimizer.step()

    def _merge(self) -> None:
        """Add up all replicas' gradients where each variable is updated."""
        for owner, received in self.received.items():
            own = self.gradients[owner][self.segments[owner]]
            for gradient in received.values():
                own += gradient
        for name, parameter in self.masters.items():
            assert parameter.grad is not None
            parameter.grad.zero_()
            for asked, gradient in zip(self.asked[name], self.row_gradients[name], strict=True):
                parameter.grad.index_add_(0, asked, gradient)

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        yield from self.masters_in(rank)
        for table in self.tables:
            if table.home == rank:
                yield table.variable.name, self.masters[table.variable.name]

    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        return [self.optimizers[rank]] if rank in self.optimizers else []


class MirrorStore(DeviceStore):
    """Variables that live in host memory and are updated on GPUs (document 000's Exp1 as its table says it).

    The owner works on its copy of a variable, which `bring` has just brought (tables are fetched whole), and writes the
    result back to the host, where the next step's copies and look-ups find it.
    """

    def __init__(self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]) -> None:
        super().__init__(context, members, shapes)
        self.host = HostMasters(context, self, slots={})
        self.written: list[Point] = []

    def start(self, ids: list[Ids]) -> None:
        """Nothing travels between devices: the host holds all masters."""

    def bring(self, rank: int, ids: Ids) -> Rows:
        self.devices.wait(rank, self.written)
        self.wire.to_device(self.values[rank], self.host.dense)
        if self.tables:
            self.devices.wait_on_host(self.written)  # the host itself reads tables; only a step's first replica waits
        return self.host.look_up(rank, ids, self.values[rank])

    def collect(self, ids: list[Ids], rows: list[Rows]) -> None:
        copies: list[Copy] = []
        self._send_ids(ids, copies)
        self._collect(rows, copies)
        self.wire.copy_all(copies)

    def update(self) -> None:
        for table in self.tables:
            self.wire.to_device(self.masters[table.variable.name].detach(), self.host.table(table))
        super().update()
        for owner, segment in self.segments.items():
            self.wire.to_host(self.host.dense[segment], self.values[owner][segment])
        for table in self.tables:
            self.wire.to_host(self.host.table(table), self.masters[table.variable.name].detach())
        self.written = self.devices.points(sorted(self.optimizers))

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        if rank == 0:
            self.devices.synchronise()
            yield from self.host.values()


STORES[False, False] = DeviceStore
STORES[True, False] = MirrorStore
