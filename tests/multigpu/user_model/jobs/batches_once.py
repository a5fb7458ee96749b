"""A generator of batches, which can be read once."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"refused": "read once and not again", "line": ""}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield torch.randn(16, 8), torch.randn(16)


job = mg.Job(Net, batches(), F.mse_loss, mg.SGD(0.1), batch_size=16)
