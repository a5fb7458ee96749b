"""Gradients of the output that torch.func takes inside of forward."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def score(self, row: Tensor) -> Tensor:
        return self.b(torch.tanh(self.a(row))).squeeze(-1)

    def forward(self, x: Tensor) -> Tensor:
        slopes = torch.func.vmap(torch.func.jacrev(self.score))(x)
        return self.score(x) + 0.1 * slopes.sum(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
