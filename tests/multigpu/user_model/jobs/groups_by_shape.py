"""An optimizer that decays matrices alone."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": ["ddp", "zero1", "fsdp2"]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


def decaying(parameters):
    matrices = [each for each in parameters if each.ndim > 1]
    others = [each for each in parameters if each.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.5, "lr": 0.2}, {"params": others}]
    return torch.optim.AdamW(groups, lr=0.05, weight_decay=0.0)


job = mg.Job(Net, batch, F.mse_loss, decaying, batch_size=16)
