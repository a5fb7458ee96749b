"""Two towers and a loss over all pairs of a batch, whose half is no batch."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {
    "cheap": True,
    "equal": True,
    "note": "half of a batch.*samples meet those of its own shard alone",
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(8, 16)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.a(x) @ self.b(y).T


def batch(n: int, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
    x, y = torch.randn(2, n, 8, generator=generator)
    return (x, y), torch.arange(n)


job = mg.Job(Net, batch, F.cross_entropy, mg.SGD(0.1), batch_size=16)
