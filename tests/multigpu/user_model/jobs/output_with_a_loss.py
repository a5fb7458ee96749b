"""A model that gives its loss in an output of several fields."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True}


@dataclass
class Output:
    loss: Tensor
    logits: Tensor


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, inputs: Tensor, labels: Tensor) -> Output:
        logits = self.b(torch.relu(self.a(inputs))).squeeze(1)
        return Output(F.mse_loss(logits, labels), logits)


def batch(n: int, generator: torch.Generator) -> dict[str, Tensor]:
    inputs = torch.randn(n, 8, generator=generator)
    return {"inputs": inputs, "labels": torch.randn(n, generator=generator)}


job = mg.Job(Net, batch, None, mg.SGD(0.1), batch_size=16)
