"""An optimizer of the first layer alone, by places in the order."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {
    "equal": ["ddp", "zero1", "fsdp2"],
    "note": "the optimizer leaves out 2 parameters",
    "flat": ["b.weight", "b.bias"],
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


def of_the_first(parameters):
    return torch.optim.SGD(parameters[:2], lr=0.1)


job = mg.Job(Net, batch, F.mse_loss, of_the_first, batch_size=16)
