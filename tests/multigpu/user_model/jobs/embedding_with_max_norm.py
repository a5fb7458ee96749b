"""A table whose rows forward shortens in place."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"refused": "forward itself changes the parameter e.weight", "line": ""}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e = nn.Embedding(50, 16, max_norm=1.0)
        self.o = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.o(self.e(x)).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randint(50, (n,), generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
