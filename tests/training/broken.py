"""Duties of which one is not done: `said` is how it is found, `fields` are those of a run that shows it; and one that counts."""

from collections.abc import Callable
from typing import Any

import torch

from multigpu.engines.torch.trainer import Context, Trainer
from multigpu.training.duties import Duties
from multigpu.training.run import TrainingRun
from multigpu.training.state import replicas_of


class OwnStart(Duties):
    """Every replica draws its own initial weights, as programs do that seed nothing; the broadcast must make them one."""

    def build(self, context: Context) -> Trainer:
        trainer = super().build(context)
        for replica in replicas_of(trainer):
            with torch.no_grad():
                for _, value in replica.owned():
                    value.add_(0.01 * replica.rank)
        return trainer


class NotBroadcast(OwnStart):
    """1 is not done."""

    said, fields = "replicas [1] start from other weights than replica 0", {}

    def start(self, trainer: Trainer) -> None:
        pass


class NotSynchronised(Duties):
    """2 is not done: the all-reduce does nothing."""

    said, fields = "their gradients were not synchronised", {}

    def build(self, context: Context) -> Trainer:
        trainer = super().build(context)
        trainer.wire.all_reduce = lambda tensor: None  # type: ignore
        return trainer


class FetchedApart(Duties):
    """2 is not done where variables are staged: the last replica computes its next step with something else than the others."""

    def build(self, context: Context) -> Trainer:
        trainer = super().build(context)
        if trainer.context.rank:  # type: ignore
            for store in trainer.stores:  # type: ignore
                bring = store.bring

                def apart(rank: int, ids: Any, store: Any = store, bring: Any = bring) -> Any:
                    rows = bring(rank, ids)
                    store.fetched += 1e-3
                    return rows

                store.bring = apart
        return trainer


class SameShard(Duties):
    """3 is not done: all replicas read the first shard."""

    said, fields = "shards are not disjoint: 300 of 1500 items of epoch 0", {}

    def shard(self, rank: int) -> int:
        return 0


ADJUSTED: dict[str, Any] = {"schedule": "luong10", "schedule_steps": 12, "scaling": "weak", "batch_size": 50}


class UnawareOfReplicas(Duties):
    """4 is not done: the schedule of one device, although the run asks for that of N."""

    said, fields = "the schedule of this run asks for", ADJUSTED

    def rates(self, training: TrainingRun, steps_per_epoch: int | None) -> Callable[[int], float]:
        return training.model_copy(update={"adjust_to_devices": False}).schedule_of(steps_per_epoch).rate


class RateNotApplied(Duties):
    """4 is not done: the optimizer keeps the rate that it was made with."""

    said = "took step 0 at the rate 0.1, and the schedule of this run asks for 0.2"
    fields = {"rate_scaling": "linear", "reference_batch": 25}

    def apply_rate(self, trainer: Trainer, rate: float) -> None:
        pass


class EveryoneLeads(Duties):
    """5 is not done: every rank evaluates, checkpoints and logs."""

    said, fields = "ranks [0, 1] evaluated or wrote files (log.jsonl)", {"evaluate_every": 3}

    def leads(self, rank: int) -> bool:
        return True


NOT_DONE: tuple[Any, ...] = (NotBroadcast, NotSynchronised, SameShard, UnawareOfReplicas, RateNotApplied, EveryoneLeads)


class Counting(Duties):
    """Counts how often initial weights are broadcast."""

    broadcasts = 0

    def start(self, trainer: Any) -> None:
        type(self).broadcasts += 1
        super().start(trainer)
