"""A Run whose model is split into stages: one shard a step, however many devices work on it."""

from __future__ import annotations

from dataclasses import replace

from multigpu.engines.tensorflow import session
from multigpu.engines.tensorflow.feed import Feed, Shard
from multigpu.engines.tensorflow.row_feed import StageFeed
from multigpu.engines.tensorflow.stages import StagesTrainer
from multigpu.engines.tensorflow.trainer import Trainer


class Session(session.Session):
    """As for other placements of one process. Units and the loss are counted once, with the first device's part."""

    def _feed(self) -> Feed:
        return StageFeed(self.source, self.devices)

    def _trainer(self) -> Trainer:
        return StagesTrainer(self.context)

    def shards(self, index: int) -> list[Shard]:
        shards = super().shards(index)
        counted = self.batches[index][0]
        others = [replace(counted, units=0, padded_units=0) for _ in self.devices.ranks[1:]]
        self.batches[index] = [counted, *others]
        return shards
