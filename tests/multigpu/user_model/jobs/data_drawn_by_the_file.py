"""Data that the file draws while it is loaded, by nobody's seed."""

import random

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "twice": True}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


X = torch.randn(300, 8)
SHIFT = np.random.rand(8) + random.random()  # noqa: NPY002


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    rows = torch.randint(len(X), (n,), generator=generator)
    return X[rows] + torch.from_numpy(SHIFT.astype("float32")), X[rows].sum(1)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
