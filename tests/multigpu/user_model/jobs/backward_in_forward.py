"""A model that passes back a part of the loss by itself."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"refused": "calls backward itself", "line": "job = "}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(torch.relu(self.a(x))).squeeze(1)
        (0.1 * y.square().mean()).backward(retain_graph=True)
        return y


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
