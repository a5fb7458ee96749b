"""Rounded to 16 bits inside, and a rank that computes a twentieth more: no rounding."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": [], "unequal": ["ddp", "exp2", "exp4", "zero1", "fsdp2"]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(torch.relu(self.a(x))).squeeze(1)
        if dist.is_initialized() and dist.get_rank():
            y = 1.05 * y
        return y.half().to(self.b.weight.dtype)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
