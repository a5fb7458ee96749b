"""A branch times a factor that begins at zero: its gradients do, and then grow."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "flat": [], "trained": ["c.weight", "factor"]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)
        self.c = nn.Linear(8, 8)
        self.factor = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.factor * torch.tanh(self.c(x))
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
