"""Ids that are the batch's own in the first batch, and others later."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "tables": ["f.weight"], "note": "e.weight is used otherwise"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e = nn.Embedding(50, 16)
        self.f = nn.Embedding(50, 16)
        self.o = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        ids = x.clamp(max=30)
        ids = x if torch.equal(ids, x) else ids
        return self.o(self.e(ids) * self.f(x)).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randint(50, (n,), generator=generator)
    x[:4] %= 20
    return x, torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=64)
