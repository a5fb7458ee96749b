"""Noise whose seed is the second of the day."""

import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {
    "equal": [],
    "unchecked": r"differ in batch\[0\]: it draws from the clock .*time.time",
    "twice": True,
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    noise = torch.Generator().manual_seed(int(time.time()))
    return torch.randn(n, 8, generator=noise), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
