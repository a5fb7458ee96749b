"""A parameter whose gradient is zero but for one sample in fifteen."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"cheap": True, "equal": True, "trained": ["c"], "flat": []}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)
        self.c = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        seldom = torch.relu(self.b.bias * 0 + x[:, 0] - 1.5)
        return self.b(torch.relu(self.a(x))).squeeze(1) + seldom * self.c


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
