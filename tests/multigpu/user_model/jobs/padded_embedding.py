"""A table whose row 0 is padding, with sparse gradients asked for."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "tables": ["e.weight"], "note": "sparse"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e = nn.Embedding(50, 16, padding_idx=0, sparse=True)
        self.o = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.o(self.e(x).sum(1)).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randint(3, (n, 5), generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.01), batch_size=16)
