"""A model given as it was loaded, in evaluation mode."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "note": "given in evaluation mode: it is trained in training mode"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.training else 0 * x
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net().eval(), batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
