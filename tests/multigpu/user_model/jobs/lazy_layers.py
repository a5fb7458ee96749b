"""Layers that learn their width from the first batch."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"cheap": True, "equal": True, "trained": ["a.weight", "b.weight"]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.LazyLinear(16)
        self.b = nn.LazyLinear(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
