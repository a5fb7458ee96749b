"""A loss with a temperature of its own, which would learn."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "note": "depends on log_scale of the loss"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(()))

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(output * self.log_scale.exp(), target)


job = mg.Job(Net, batch, Scaled(), mg.SGD(0.1), batch_size=16)
