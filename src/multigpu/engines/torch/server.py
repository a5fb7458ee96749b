"""Placements with a parameter server: replicas pull variables, push gradients, and stores update them."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from multigpu.engines.errors import Unsupported
from multigpu.engines.torch import device_store, host_store, told  # noqa: F401  (the first two register their stores)
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.staged import STAGED
from multigpu.engines.torch.stores import STORES, Ids, Store
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import Context, Trainer, total_of
from multigpu.engines.torch.variables import materialise
from multigpu.placements.traffic import HOST, Assigned


class ServerTrainer(Trainer):
    """Pull, look up, compute, push, merge and update, with a store for each kind of home in the placement's row."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        shapes = dict(self.module.named_parameters())
        groups: dict[tuple[bool, bool], list[Assigned]] = {}
        for member in context.assigned:
            groups.setdefault((member.home == HOST, member.update == HOST), []).append(member)
        self.stores: list[Store] = []
        known = STAGED if context.placement.staged else STORES
        for kind, members in groups.items():
            if kind not in known:
                raise Unsupported(f"no store keeps variables on the {'host' if kind[0] else 'devices'} and updates them elsewhere")
            self.stores.append(known[kind](context, members, shapes))
        memory = {name: view for store in self.stores for name, view in store.computed_with.items()}
        parameters = materialise(self.module, memory, self.device.torch, self.device.dtype)
        for store in self.stores:
            for name, gradient in store.gradient_views.items():
                parameters[name].grad = gradient

    def step(self, shard: Shard) -> Tensor:
        ids = Ids(self.lookups(shard.host), self.lookups(shard.device))
        rows = {}
        with phase("pull"):
            for store in self.stores:
                store.pull()
                store.fill_apart()
                store.gradients.zero_()
                if store.tables:
                    rows.update(store.look_up(shard, ids))
        losses = []
        for part, own in self.parts(shard, rows):
            with phase("forward"):
                losses.append(self.loss(part, shard.batch.joined_loss_terms, own))
            with phase("backward"):
                losses[-1].backward()
        with phase("merge"):
            for store in self.stores:
                store.push(shard, ids, rows)
        with phase("update"):  # stores that first merge say so
            for store in self.stores:
                store.update(shard)
        return total_of(losses)

    def owned(self) -> Iterator[tuple[str, Tensor]]:
        for store in self.stores:
            yield from store.owned()

    def full_values(self) -> dict[str, Tensor]:
        mine = super().full_values()
        gathered: list[dict[str, Tensor]] = told.everyone(mine) if self.replicas > 1 else [mine]
        return {name: value for part in gathered for name, value in part.items()}
