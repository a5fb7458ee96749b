"""Parameter servers whose updates run on GPUs, each variable on one owner; masters live there too,
or in host memory. Where replicas compute with the variables of one step before (tf_cnn_benchmarks'
staged_vars; `host_store` has the other such store), step t begins with what the step before has
fetched, w(t-1), and while it computes it fetches w(t), which its update turns into w(t+1). The
first step has nothing older than the first values: w(-1) = w(0). So fetching hides behind
computing, and gradients are one update old.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.torch.devices import Point
from multigpu.engines.torch.host_store import HostMasters
from multigpu.engines.torch.stores import Ids, Store, gradient_of, leaf, parts_by_place
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Rows
from multigpu.engines.torch.variables import make_optimizer, views_of
from multigpu.engines.torch.wire import ELSEWHERE, Copy
from multigpu.placements.traffic import Assigned


class DeviceStore(Store):
    """Variables on GPUs, each whole on one owner, whose dense ones are one message."""

    def __init__(
        self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]
    ) -> None:
        super().__init__(context, members, shapes)
        self.segments = parts_by_place(self.dense, self.replicas)
        # [owner][peer]: gradients that an owner in this process receives, by the replica they come
        # from
        self.received: dict[int, dict[int, Tensor]] = {}
        self.masters: dict[str, nn.Parameter] = {}
        self.optimizers: dict[int, torch.optim.Optimizer] = {}
        for owner in self.ranks:
            parameters = []
            own = self.gradients[owner][self.segments[owner]]
            self.received[owner] = {
                peer: torch.empty_like(own) for peer in range(self.replicas) if peer != owner
            }
            if own.numel():
                parameters.append(nn.Parameter(self.values[owner][self.segments[owner]]))
                parameters[0].grad = own
            for table in self.tables:
                if table.update == owner:
                    parameter = nn.Parameter(self.initial(table, owner))
                    parameter.grad = torch.zeros_like(parameter)
                    self.masters[table.variable.name] = parameter
                    parameters.append(parameter)
            if parameters:
                self.optimizers[owner] = make_optimizer(context.rule, parameters, context.captured)
        # of the current step, on owners in this process, by table: each replica's ids and the
        # gradients of its rows, the owner's own first
        self.asked: dict[str, dict[int, Tensor]] = {}
        self.row_gradients: dict[str, dict[int, Tensor]] = {}
        self.found: dict[int, Rows] = {}

    def _segment(self, whole: Mapping[int, Tensor], rank: int, owner: int) -> Tensor:
        """Replica `rank`'s copy of what `owner` holds."""
        return whole[rank][self.segments[owner]] if rank in whole else ELSEWHERE

    def _peers(self, owner: int) -> list[int]:
        """Every other replica, where it or the owner is in this process."""
        return [
            peer
            for peer in range(self.replicas)
            if peer != owner and {owner, peer} & set(self.ranks)
        ]

    def _gathered(
        self, table: Assigned, own: Mapping[int, Tensor], copies: list[Copy]
    ) -> dict[int, Tensor]:
        """Where the owner will find every replica's tensor once `copies`, which grow, are done."""
        owner, like = table.update, own[self.ranks[0]]
        found = {owner: own[owner]} if owner in own else {}
        for rank in self._peers(owner):
            target = ELSEWHERE
            if owner in self.ranks:
                shape = (self.counts[rank].get(table.variable.name, 0), *like.shape[1:])
                target = found[rank] = torch.empty(
                    shape, dtype=like.dtype, device=self.devices.of(owner).torch
                )
            copies.append(Copy(rank, own.get(rank, ELSEWHERE), owner, target))
        return found

    def _ids_copies(self, ids: Mapping[int, Ids]) -> list[Copy]:
        """Return the copies that tell every table's owner which rows each replica works with."""
        copies: list[Copy] = []
        for table in self.tables:
            name = table.variable.name
            self.asked[name] = self._gathered(
                table, {rank: own.device[name].reshape(-1) for rank, own in ids.items()}, copies
            )
        return copies

    def start(self, ids: Mapping[int, Ids], counts: Sequence[Mapping[str, int]]) -> None:
        super().start(ids, counts)
        dense = [
            Copy(
                owner,
                self._segment(self.values, owner, owner),
                peer,
                self._segment(self.values, peer, owner),
            )
            for owner in range(self.replicas)
            for peer in self._peers(owner)
        ]
        self.wire.copy_all(dense, self._ids_copies(ids))
        self._send_rows(ids)

    def _send_rows(self, ids: Mapping[int, Ids]) -> None:
        self.found, copies = {rank: {} for rank in self.ranks}, []
        for table in self.tables:
            name, owner, width = table.variable.name, table.update, table.variable.shape[1]
            sent = {
                rank: self.masters[name].detach().index_select(0, asked)
                for rank, asked in self.asked[name].items()
            }
            for rank in self._peers(owner):
                target = ELSEWHERE
                if rank in self.ranks:
                    count = ids[rank].device[name].numel()
                    target = torch.empty(
                        count, width, device=self.devices.of(rank).torch, dtype=self.devices.dtype
                    )
                    self.found[rank][name] = target
                copies.append(Copy(owner, sent.get(rank, ELSEWHERE), rank, target))
            if owner in sent:
                self.found[owner][name] = sent[owner]
        self.wire.copy_all(copies)

    def bring(self, rank: int, ids: Ids) -> Rows:
        return {name: leaf(rows, ids.device[name]) for name, rows in self.found[rank].items()}

    def collect(self, ids: Mapping[int, Ids], rows: Mapping[int, Rows]) -> None:
        self.wire.copy_all(self._gradient_copies(rows))

    def _gradient_copies(self, rows: Mapping[int, Rows]) -> list[Copy]:
        copies = [
            Copy(
                peer,
                self._segment(self.gradients, peer, owner),
                owner,
                self.received.get(owner, {}).get(peer, ELSEWHERE),
            )
            for owner in range(self.replicas)
            for peer in self._peers(owner)
        ]
        for table in self.tables:
            gradients = {rank: gradient_of(own, table) for rank, own in rows.items()}
            self.row_gradients[table.variable.name] = self._gathered(table, gradients, copies)
        return copies

    def update(self) -> None:
        with phase("merge"):
            self._reduce()
        for owner, optimizer in self.optimizers.items():
            with self.devices.at(owner):
                optimizer.step()

    def _reduce(self) -> None:
        for owner, received in self.received.items():
            own = self.gradients[owner][self.segments[owner]]
            for gradient in received.values():
                own += gradient
        for name, parameter in self.masters.items():
            assert parameter.grad is not None
            parameter.grad.zero_()
            for rank, asked in self.asked[name].items():
                parameter.grad.index_add_(0, asked, self.row_gradients[name][rank])

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        for member in self.dense:
            if member.update == rank:
                yield member.variable.name, self.views[rank][member.variable.name]
        for table in self.tables:
            if table.update == rank:
                yield table.variable.name, self.masters[table.variable.name]

    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        return [self.optimizers[rank]] if rank in self.optimizers else []


class MirrorStore(DeviceStore):
    """Variables in host memory, brought to GPUs to be updated (document 000's Exp1)."""

    def __init__(
        self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]
    ) -> None:
        super().__init__(context, members, shapes)
        self.host = HostMasters(context, self, slots={})
        self.mine = [table for table in self.tables if table.update in self.ranks]
        for table in self.mine:
            self.host.memory.lock(self.host.table(table))
        self.written: list[Point] = []

    def start(self, ids: Mapping[int, Ids], counts: Sequence[Mapping[str, int]]) -> None:
        self.counts = counts

    def bring(self, rank: int, ids: Ids) -> Rows:
        self.devices.wait(rank, self.written)
        self.wire.to_device(self.values[rank], self.host.dense)
        if self.tables:
            # the host itself reads tables; only a step's first replica waits
            for _, event in self.written:
                event.synchronize()
        return self.host.look_up(rank, ids)

    def collect(self, ids: Mapping[int, Ids], rows: Mapping[int, Rows]) -> None:
        self.wire.copy_all(self._ids_copies(ids), self._gradient_copies(rows))

    def update(self) -> None:
        for table in self.mine:
            self.wire.to_device(self.masters[table.variable.name].detach(), self.host.table(table))
        super().update()
        for owner in self.ranks:
            if self.values[owner][self.segments[owner]].numel():
                self.wire.to_host(
                    self.host.dense[self.segments[owner]], self.values[owner][self.segments[owner]]
                )
        for table in self.mine:
            self.wire.to_host(self.host.table(table), self.masters[table.variable.name].detach())
        if self.context.run.processes == "one":
            self.written = self.devices.points(sorted(self.optimizers))
        else:  # other processes read it
            self.devices.synchronise()
            self.host.barrier.wait()

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        if rank == 0:
            self.devices.synchronise()
            yield from self.host.values()


class StagedDeviceStore(DeviceStore):
    """Owners send while all compute with old values, so masters have their own memory."""

    def __init__(
        self, context: Context, members: list[Assigned], shapes: dict[str, nn.Parameter]
    ) -> None:
        super().__init__(context, members, shapes)
        self.rank = context.rank
        mine = self.segments[self.rank]
        self.fetched = self.values[self.rank].clone()
        self.master = self.values[self.rank][mine].clone()
        if self.optimizers:
            parameter = nn.Parameter(self.master)
            parameter.grad = self.gradients[self.rank][mine]
            self.optimizers = {
                self.rank: make_optimizer(context.rule, [parameter], context.captured)
            }
        self.coming: list[Any] = []

    def start(self, ids: Mapping[int, Ids], counts: Sequence[Mapping[str, int]]) -> None:
        self.values[self.rank].copy_(self.fetched)
        self.fetched[self.segments[self.rank]].copy_(self.master)
        peers = [rank for rank in range(self.replicas) if rank != self.rank]
        self.coming = self.wire.start_exchange(
            [(peer, self.master) for peer in peers],
            [(peer, self.fetched[self.segments[peer]]) for peer in peers],
        )

    def bring(self, rank: int, ids: Ids) -> Rows:
        return {}

    def collect(self, ids: Mapping[int, Ids], rows: Mapping[int, Rows]) -> None:
        """The masters may change from now on: what was sent has arrived."""
        for work in self.coming:
            work.wait()
        self.coming = []
        super().collect(ids, rows)

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        own = dict(super().owned(rank))
        yield from zip(own, views_of(self.master, own.values()), strict=True)
