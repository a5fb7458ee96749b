"""An optimizer for sparse gradients, which placements merge as arrays."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"refused": "optimizer fails with RuntimeError: SparseAdam", "line": "job = "}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e = nn.Embedding(50, 1, sparse=True)

    def forward(self, ids: Tensor) -> Tensor:
        return self.e(ids).sum((1, 2))


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    ids = torch.randint(0, 50, (n, 4), generator=generator)
    return ids, torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, lambda p: torch.optim.SparseAdam(p, lr=0.1), batch_size=16)
