"""A branch that one sample in ten reaches."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"cheap": True, "equal": True, "fixed": [], "trained": ["rare.weight", "rare.bias"]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 1)
        self.rare = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x).squeeze(1)
        mine = x[:, 0] > 1.3
        if mine.any():
            rows = mine.nonzero()[:, 0]
            y = y.index_put((rows,), y[mine] + self.rare(x[mine]).squeeze(1))
        return y


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=64)
