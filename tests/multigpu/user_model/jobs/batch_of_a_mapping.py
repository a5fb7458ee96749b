"""A mapping of a class of its own, as tokenizers give, read by attributes."""

from collections import UserDict

import torch
from torch import Tensor, nn

import multigpu as mg

EXPECTED = {"equal": True}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


class Encoding(UserDict):
    def __getattr__(self, name: str) -> Tensor:
        return self.data[name]


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Encoding]:
    x = torch.randn(n, 8, generator=generator)
    return x, Encoding({"labels": x.sum(1), "weights": torch.rand(n, generator=generator)})


def loss(output: Tensor, target: Encoding) -> Tensor:
    return (target.weights * (output - target["labels"]).square()).mean()


job = mg.Job(Net, batch, loss, mg.SGD(0.1), batch_size=16)
