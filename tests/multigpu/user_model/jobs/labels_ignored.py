"""Labels of which a mean over the others leaves out a third."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "note": "mean over what samples have unequally much of"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 8, generator=generator)
    label = torch.randint(0, 5, (n,), generator=generator)
    return x, torch.where(torch.rand(n, generator=generator) < 0.3, -100, label)


job = mg.Job(Net, batch, F.cross_entropy, mg.SGD(0.1), batch_size=8)
