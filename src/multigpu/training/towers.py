"""The replicas of one TrainingRun that one process works on: its own, or all of them where one thread dispatches for all devices."""

from collections.abc import Iterator

import torch
from torch import Tensor

from multigpu.engines.torch.captured import CapturedTrainer
from multigpu.engines.torch.trainer import Trainer


class Tower:
    """One replica of a trainer, which may have several in this process: what it holds, and what updates that."""

    def __init__(self, trainer: Trainer, rank: int) -> None:
        self.trainer = trainer.trainer if isinstance(trainer, CapturedTrainer) else trainer
        self.rank, self.replicas = rank, trainer.replicas
        self.device, self.module = trainer.devices.of(rank), trainer.modules[rank]

    @property
    def replicated(self) -> bool:
        """Whether every replica keeps copies of all variables that must be equal."""
        row = self.trainer.context.placement
        return row.variables == "replica" and row.semantics.facts.replicas_agree and self.replicas > 1

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those that update what this replica answers for, in one order."""
        return self.trainer.optimizers_of(self.rank)

    def owned(self) -> Iterator[tuple[str, Tensor]]:
        """As `Trainer.owned`."""
        return self.trainer.owned(self.rank)

    def full_values(self) -> dict[str, Tensor]:
        """All variables on the CPU: this replica's copies, or the masters wherever they are."""
        return self.trainer.full_values(self.rank)


def replicas_of(trainer: Trainer) -> list[Tower]:
    """The replicas that a trainer has in this process, by rank."""
    return [Tower(trainer, rank) for rank in trainer.ranks]
