"""What every placement's step has in common where one thread dispatches for all devices: towers, one after another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.trainer import AnyTrainer, Context, StepModule, build_module

Rows = dict[str, Tensor]
"""Embedding variable -> rows that one replica looked up, leaves that collect a gradient."""


class Trainer(AnyTrainer):
    """All replicas of a placement.

    `step` trains on one shard a replica, in order of rank, and returns each one's share of the joined batch's mean loss
    (0-dim, on its device). It may return before the devices have finished.
    """

    def __init__(self, context: Context) -> None:
        self.context, self.devices, self.wire, self.replicas = context, context.devices, context.wire, context.replicas
        self.modules = [build_module(context.run) for _ in range(self.replicas)]

    def lookups(self, rank: int, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Embedding variable -> ids of the rows that this batch looks up."""
        return cast(StepModule, self.modules[rank]).lookups(batch)

    def forward(self, rank: int, shard: Shard, terms: int, rows: Rows | None = None) -> Tensor:
        """One tower: the shard's loss over `terms`, to be differentiated."""
        with phase("forward"), self.devices.at(rank):
            with self.devices.each[rank].autocast():
                total = self.modules[rank](shard.device, rows)
            return total / terms

    def backward(self, losses: list[Tensor]) -> None:
        """All towers' backward passes at once.

        The library has a thread for each GPU, so the towers' backward passes are dispatched side by side (as TensorFlow's
        executor does); one call a tower would dispatch them one after another. On CPUs there is one thread for all.
        """
        with phase("backward"):
            torch.autograd.backward(losses)

    @abstractmethod
    def owned(self, rank: int) -> Iterator[tuple[str, Tensor]]:
        """The current values of master copies, by variable, for which the Record's part `rank` answers: those on its device,
        and rank 0 also for those on the host.
        """

    @abstractmethod
    def optimizers_of(self, rank: int) -> list[torch.optim.Optimizer]:
        """Those whose slots lie on this device (the host's count as rank 0's), in one order: the rest of what training must keep."""

    def full_values(self, rank: int = 0) -> dict[str, Tensor]:
        """All variables on the CPU, contiguous (of replica `rank`, where each has its own)."""
        replicated = self.context.placement.variables == "replica"
        values: dict[str, Tensor] = {}
        for part in [rank] if replicated else range(self.replicas):
            values |= {name: value.detach().cpu().contiguous().clone() for name, value in self.owned(part)}
        return values
