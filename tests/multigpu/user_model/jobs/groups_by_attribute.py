"""An optimizer that learns faster where the model marked its parameters."""

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
        for parameter in self.b.parameters():
            parameter.is_fast = True

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


def by_mark(parameters):
    fast = [each for each in parameters if hasattr(each, "is_fast")]
    others = [each for each in parameters if not hasattr(each, "is_fast")]
    return torch.optim.SGD([{"params": fast, "lr": 0.3}, {"params": others}], lr=0.05)


job = mg.Job(Net, batch, F.mse_loss, by_mark, batch_size=16)
