"""A Run whose model is split into stages: one shard a step, however many devices work on it."""

from __future__ import annotations

from dataclasses import replace

from multigpu.engines.torch.dispatch import session
from multigpu.engines.torch.dispatch.trainer import Trainer
from multigpu.engines.torch.feed import Feed, Shard
from multigpu.engines.torch.stages import StageFeed, StagesTrainer


class Session(session.Session):
    """As for other placements dispatched by one thread. Units and the loss are counted once, with the first device's part."""

    def _feeds(self) -> list[Feed]:
        return [StageFeed(self.source, self.run, self.devices)]

    def _trainer(self) -> Trainer:
        return StagesTrainer(self.context)

    def shards(self, index: int) -> list[Shard]:
        shards = super().shards(index)
        counted = self.batches[index][0]
        others = [replace(counted, units=0, padded_units=0) for _ in self.devices.each[1:]]
        self.batches[index] = [counted, *others]
        return shards
