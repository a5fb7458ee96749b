"""An encoder whose weight, turned, is the decoder's."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "trained": ["encode.weight"]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(8, 4)
        self.bias = nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.tanh(self.encode(x)), self.encode.weight.T, self.bias)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 8, generator=generator)
    return x, x


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
