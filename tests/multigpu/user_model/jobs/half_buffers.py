"""Buffers of other types than the parameters'."""

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

        self.register_buffer("scale", torch.linspace(0, 1, 8, dtype=torch.float64))
        self.register_buffer("low", torch.ones(8, dtype=torch.bfloat16) / 3)

    def forward(self, x: Tensor) -> Tensor:
        x = (x * self.scale * self.low).to(self.a.weight.dtype)
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
