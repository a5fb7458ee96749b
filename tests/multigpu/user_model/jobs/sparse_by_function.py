"""F.embedding with sparse gradients, which nothing can switch off from outside."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"refused": "sparse", "line": ""}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(50, 16))
        self.o = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.o(F.embedding(x, self.w, sparse=True)).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randint(50, (n,), generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
