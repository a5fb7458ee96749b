"""Placements with a parameter server: replicas pull variables, push gradients, and stores update them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from multigpu.engines.errors import Unsupported
from multigpu.engines.torch import told
from multigpu.engines.torch.device_store import DeviceStore, MirrorStore
from multigpu.engines.torch.dispatch.trainer import Rows
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.host_store import HostStore
from multigpu.engines.torch.staged import StagedDeviceStore, StagedHostStore
from multigpu.engines.torch.stores import Ids, Store
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Trainer, total_of
from multigpu.engines.torch.variables import materialise
from multigpu.placements.traffic import HOST, Assigned

STORES: dict[tuple[bool, bool], Any] = {(False, False): DeviceStore, (True, False): MirrorStore, (True, True): HostStore}
"""(home is the host, update is on the host) -> the store that does so."""

STAGED: dict[tuple[bool, bool], Any] = {(False, False): StagedDeviceStore, (True, True): StagedHostStore}
"""The same for placements that stage."""


def make_stores(context: Context, modules: Mapping[int, nn.Module]) -> list[Store]:
    """A store for each kind of home in the placement's row, and memory from them under the modules of this process's replicas, by rank.

    Raises:
        Unsupported: no store does what the row says.
    """
    shapes = dict(next(iter(modules.values())).named_parameters())
    groups: dict[tuple[bool, bool], list[Assigned]] = {}
    for member in context.assigned:
        groups.setdefault((member.home == HOST, member.update == HOST), []).append(member)
    stores: list[Store] = []
    known = STAGED if context.placement.staged else STORES
    for kind, members in groups.items():
        if kind not in known:
            raise Unsupported(f"no store keeps variables on the {'host' if kind[0] else 'devices'} and updates them elsewhere")
        stores.append(known[kind](context, members, shapes))
    for rank, module in modules.items():
        memory = {name: view for store in stores for name, view in store.computed_with(rank).items()}
        parameters = materialise(module, memory, context.devices.of(rank).torch, context.devices.dtype)
        for store in stores:
            for name, gradient in store.gradient_views[rank].items():
                parameters[name].grad = gradient
    return stores


def start(stores: list[Store], ids: Mapping[int, Ids], counts: Sequence[Mapping[str, int]]) -> None:
    """Values that devices hold, on their way to the replicas. ids: of each replica in this process; counts: of all, as `Store.counts`."""
    with phase("pull"):
        for store in stores:
            store.start(ids, counts)


def bring(stores: list[Store], rank: int, ids: Ids) -> Rows:
    """All values and rows of one replica where it computes with them, its gradients at zero."""
    rows: Rows = {}
    with phase("pull"):
        for store in stores:
            store.gradients[rank].zero_()
            rows |= store.bring(rank, ids)
            store.fill_apart(rank)
    return rows


def finish(stores: list[Store], ids: Mapping[int, Ids], rows: Mapping[int, Rows]) -> None:
    """Gradients to where they merge, and the update."""
    with phase("merge"):
        for store in stores:
            store.collect(ids, rows)
    with phase("update"):  # stores that first merge say so
        for store in stores:
            store.update()


class ServerTrainer(Trainer):
    """One replica that has a process of its own."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.stores = make_stores(context, {self.rank: self.module})

    def step(self, shard: Shard) -> Tensor:
        ids = Ids(self.lookups(shard.host), self.lookups(shard.device))
        start(self.stores, {self.rank: ids}, shard.batch.lookups)
        rows = bring(self.stores, self.rank, ids)
        losses = []
        for part, own in self.parts(shard, rows):
            with phase("forward"):
                losses.append(self.loss(part, shard.batch.joined_loss_terms, own))
            with phase("backward"):
                losses[-1].backward()
        finish(self.stores, {self.rank: ids}, {self.rank: rows})
        return total_of(losses)

    def owned(self) -> Iterator[tuple[str, Tensor]]:
        for store in self.stores:
            yield from store.owned(self.rank)

    def full_values(self) -> dict[str, Tensor]:
        mine = super().full_values()
        gathered: list[dict[str, Tensor]] = told.everyone(mine) if self.replicas > 1 else [mine]
        return {name: value for part in gathered for name, value in part.items()}
