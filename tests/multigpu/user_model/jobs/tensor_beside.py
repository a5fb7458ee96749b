"""A tensor that is neither a parameter nor a buffer, and rounds otherwise in fp64."""

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
        self.places = torch.linspace(0, 1, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.a(x + self.places))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 8, generator=generator)
    return x, x[:, :3].sin().sum(1)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=8)
