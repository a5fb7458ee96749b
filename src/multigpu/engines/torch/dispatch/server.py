"""Placements with a parameter server, dispatched by one thread."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from multigpu.engines.torch.dispatch.trainer import Rows, Trainer
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.server import bring, finish, make_stores, start
from multigpu.engines.torch.stores import Ids
from multigpu.engines.torch.trainer import Context


class ServerTrainer(Trainer):
    """All replicas of this process, with a store for each kind of home in the row."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.stores = make_stores(context, dict(enumerate(self.modules)))

    def step(self, shards: list[Shard]) -> list[Tensor]:
        ids = {rank: Ids(self.lookups(rank, shard.host), self.lookups(rank, shard.device)) for rank, shard in enumerate(shards)}
        start(self.stores, ids, shards[0].batch.lookups)
        rows: dict[int, Rows] = {}
        losses = []
        for rank, shard in enumerate(shards):
            rows[rank] = bring(self.stores, rank, ids[rank])
            losses.append(self.forward(rank, shard, shard.batch.joined_loss_terms, rows[rank]))
        self.backward(losses)
        finish(self.stores, ids, rows)
        return [loss.detach() for loss in losses]

    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        for store in self.stores:
            yield from store.owned(rank)

    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        return [optimizer for store in self.stores for optimizer in store.optimizers_of(rank)]
