"""Replicas that share the update out: each one merges, keeps the optimiser's states of, and updates a stretch of all variables."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.replicated import ReplicatedTrainer
from multigpu.engines.torch.tracing import phase
from multigpu.engines.torch.variables import strided_view
from multigpu.placements.traffic import laid_out


class ShardedUpdateTrainer(ReplicatedTrainer):
    """All variables lie end to end on every replica, and so do their gradients, both cut into equal stretches, one a replica.

    The library's reduce-scatter sums each replica's stretch of the gradients, its optimizer knows that stretch alone as one parameter
    (every rule here works element by element), and the library's all-gather brings the new values to all.
    """

    def _flatten_gradients(self) -> None:
        parameters = list(self.parameters.values())
        device, dtype = self.device.torch, self.device.dtype
        starts, length = laid_out([parameter.numel() for parameter in parameters], dtype.itemsize, self.replicas)
        self.values = torch.zeros(length, device=device, dtype=dtype)
        for parameter, start in zip(parameters, starts, strict=True):
            parameter.data = strided_view(self.values[start:], parameter).copy_(parameter.data)
        self.gradients = torch.zeros(length, device=device, dtype=dtype)
        for parameter, start in zip(parameters, starts, strict=True):
            parameter.grad = strided_view(self.gradients[start:], parameter)
        share = length // self.replicas
        self.stretch = nn.Parameter(self.values[self.rank * share :][:share])
        self.stretch.grad = self.gradients[self.rank * share :][:share]
        self.optimizer = self._optimizer([self.stretch])

    def _merge_after_backward(self) -> None:
        assert self.gradients is not None and self.stretch.grad is not None
        self.wire.reduce_scatter(self.stretch.grad, self.gradients)

    def step(self, shards: list[Shard]) -> list[Tensor]:
        losses = super().step(shards)
        with phase("pull"):
            self.wire.all_gather(self.values, self.stretch.detach())
        return losses
