"""A batch that one rank waits for without an end."""

import os
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"refused": "rank 1", "line": "", "budget_s": 45, "ends_s": 100}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    while os.environ.get("RANK") == "1":
        time.sleep(0.1)
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
