"""Named parts of a class that the model asks for."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True}


class Parts(NamedTuple):
    x: Tensor
    weight: Tensor


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, parts: Parts, scale: Tensor) -> Tensor:
        assert isinstance(parts, Parts)
        return self.b(torch.relu(self.a(parts.x))).squeeze(1) * parts.weight * scale


def batch(n: int, generator: torch.Generator) -> tuple[tuple[Parts, Tensor], Tensor]:
    x = torch.randn(n, 8, generator=generator)
    return (Parts(x, x[:, 0].abs()), torch.ones(n)), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
