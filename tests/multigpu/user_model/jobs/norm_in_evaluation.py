"""A batch norm that its maker has put into evaluation mode."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "note": "n is in evaluation mode, and stays in it"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)
        self.n = nn.BatchNorm1d(16)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.n(self.a(x)))).squeeze(1)


def model() -> nn.Module:
    made = Net()
    made.n.running_mean.normal_()
    made.n.eval()
    return made


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(model, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
