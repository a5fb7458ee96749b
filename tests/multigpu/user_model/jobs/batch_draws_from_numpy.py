"""A batch drawn from a generator of numpy's that nobody seeded."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {
    "cheap": True,
    "equal": [],
    "unchecked": r"ignores its generator.*differ in batch.*default_rng",
    "twice": True,
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


RNG = np.random.default_rng()


def batch(n: int, generator: torch.Generator) -> tuple[np.ndarray, np.ndarray]:
    return RNG.standard_normal((n, 8)), RNG.standard_normal(n)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
