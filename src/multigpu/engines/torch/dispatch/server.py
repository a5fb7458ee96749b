"""Placements with a parameter server, dispatched by one thread."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from multigpu.engines.errors import Unsupported
from multigpu.engines.torch.dispatch import device_store, host_store  # noqa: F401  (they register their stores)
from multigpu.engines.torch.dispatch.stores import STORES, Store, kind_of
from multigpu.engines.torch.dispatch.trainer import Context, Rows, Trainer
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.stores import Ids
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.variables import materialise
from multigpu.placements.traffic import Assigned


class ServerTrainer(Trainer):
    """Values to all replicas, towers, gradients back, merge and update, with a store for each kind of home in the row."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        shapes = dict(self.modules[0].named_parameters())
        groups: dict[tuple[bool, bool], list[Assigned]] = {}
        for member in context.assigned:
            groups.setdefault(kind_of(member), []).append(member)
        self.stores: list[Store] = []
        for kind, members in groups.items():
            if kind not in STORES:
                raise Unsupported(f"no store keeps variables on the {'host' if kind[0] else 'devices'} and updates them elsewhere")
            self.stores.append(STORES[kind](context, members, shapes))
        for rank, module in enumerate(self.modules):
            device = self.devices.each[rank]
            memory = {name: view for store in self.stores for name, view in store.views[rank].items()}
            parameters = materialise(module, memory, device.torch, device.dtype)
            for store in self.stores:
                for name, gradient in store.gradient_views[rank].items():
                    parameters[name].grad = gradient

    def step(self, shards: list[Shard]) -> list[Tensor]:
        ids = [Ids(self.lookups(rank, shard.host), self.lookups(rank, shard.device)) for rank, shard in enumerate(shards)]
        with phase("pull"):
            for store in self.stores:
                store.start(ids)
        losses: list[Tensor] = []
        rows: list[Rows] = []
        for rank, shard in enumerate(shards):
            mine: Rows = {}
            with phase("pull"):
                for store in self.stores:
                    mine |= store.bring(rank, ids[rank])
                    store.gradients[rank].zero_()
            rows.append(mine)
            losses.append(self.forward(rank, shard, shard.batch.joined_loss_terms, mine))
        self.backward(losses)
        with phase("merge"):
            for store in self.stores:
                store.collect(ids, rows)
        with phase("update"):  # stores that first merge say so
            for store in self.stores:
                store.update()
        return [loss.detach() for loss in losses]

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        for store in self.stores:
            yield from store.owned(rank)

    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        return [optimizer for store in self.stores for optimizer in store.optimizers_of(rank)]
