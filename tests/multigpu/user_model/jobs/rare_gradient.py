"""A gradient that is exactly zero but for one sample in ten."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "flat": [], "trained": ["rare.weight", "rare.bias"]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 1)
        self.rare = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x).squeeze(1) + self.rare(x).squeeze(1) * (x[:, 0] > 1.3)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=64)
