"""A batch of classes of one's own: a named tuple of inputs and a dataclass of targets."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return scale * self.b(torch.relu(self.a(x))).squeeze(1)


class Inputs(NamedTuple):
    x: Tensor
    scale: Tensor


@dataclass
class Target:
    value: Tensor
    weight: Tensor | None = None


def batch(n: int, generator: torch.Generator) -> tuple[Inputs, Target]:
    x = torch.randn(n, 8, generator=generator)
    return Inputs(x, torch.rand(n, generator=generator)), Target(x.sum(1))


def loss(output: Tensor, target: Target) -> Tensor:
    assert target.weight is None
    return F.mse_loss(output, target.value)


job = mg.Job(Net, batch, loss, mg.SGD(0.1), batch_size=16)
