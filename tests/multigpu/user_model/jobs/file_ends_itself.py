"""A file that ends its process where no option is given."""

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"refused": "ends its process .SystemExit: 3.", "line": "sys.exit(3)"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


if len(sys.argv) < 2:
    sys.exit(3)

job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
