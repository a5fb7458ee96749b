"""The five duties of document 004: what N replicas must do beside a step, so that they train one model.

Each is one method, so that each can be replaced (and broken, and the breaking be noticed) by itself. `evidence` judges what
they left behind.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.trainer import Context, Trainer
from multigpu.training.run import TrainingRun
from multigpu.training.state import copies_of, set_rate
from multigpu.training.towers import replicas_of


class Duties:
    """What a process does for its replica, or for all of them."""

    def start(self, trainer: Trainer) -> None:
        """1. Identical initial weights: every replica takes rank 0's variables and running statistics.

        Only before training: scoring a model needs no other replica. Placements with one master a variable have nothing to send.
        """
        first, *others = (copies_of(replica) for replica in replicas_of(trainer))
        for other in others:
            for tensor, sent in zip(other, first, strict=True):
                with torch.no_grad():
                    tensor.copy_(sent)
        if trainer.context.run.processes == "one":
            return
        for tensor in first:
            sent = tensor.detach().contiguous()
            dist.broadcast(sent, 0)
            with torch.no_grad():
                tensor.copy_(sent)

    def build(self, context: Context) -> Trainer:
        """2. Synchronised gradients: the trainer of the placement, whose step merges what all replicas computed."""
        return build_trainer(context)

    def shard(self, rank: int) -> int:
        """3. Disjoint shards: which part of every joined batch this replica trains on."""
        return rank

    def rates(self, training: TrainingRun, steps_per_epoch: int | None) -> Callable[[int], float]:
        """4. A schedule that knows how many replicas there are (as far as the Run asks for it): step -> rate."""
        return training.schedule_of(steps_per_epoch).rate

    def apply_rate(self, trainer: Trainer, rate: float) -> None:
        """4, carried out before every step."""
        for replica in replicas_of(trainer):
            set_rate(replica, rate)

    def leads(self, rank: int) -> bool:
        """5. Whether this replica evaluates, checkpoints and logs: one does."""
        return rank == 0
