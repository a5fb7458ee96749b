"""Parameters of no dimension, of no element, and with another order in memory."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"cheap": True, "equal": True, "fixed": ["none"], "note": "no elements"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.none = nn.Parameter(torch.zeros(0, 3))
        self.turned = nn.Parameter(torch.randn(8, 8).T)

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(torch.relu(self.a(x @ self.turned))).squeeze(1)
        return self.scale * y + self.none.sum()


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.01), batch_size=16)
