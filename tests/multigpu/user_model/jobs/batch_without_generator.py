"""A function of batches that takes no generator."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"refused": "write batch\\(n, generator\\)", "line": "job = "}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8), torch.randn(n)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
