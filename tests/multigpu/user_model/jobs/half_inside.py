"""Numbers that are rounded to 16 bits in forward, and their gradients, some to nothing."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "note": "it computes in float16 inside"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.a(x)).half().to(self.b.weight.dtype)
        return self.b(hidden).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


def small(output: Tensor, target: Tensor) -> Tensor:
    return 1e-4 * F.mse_loss(output, target)


job = mg.Job(Net, batch, small, mg.SGD(100.0), batch_size=16)
