"""A model that gives a contrastive loss of all pairs in its batch."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "note": "samples meet those of its own shard alone"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(8, 16)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        near = self.a(x) @ self.b(y).T
        own = torch.arange(len(x))
        return (F.cross_entropy(near, own) + F.cross_entropy(near.T, own)) / 2


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x, y = torch.randn(2, n, 8, generator=generator)
    return x, y


job = mg.Job(Net, batch, None, mg.SGD(0.1), batch_size=16)
