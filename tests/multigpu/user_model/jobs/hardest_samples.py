"""A loss that is the mean over the half of the samples with most error."""

import torch
from torch import Tensor, nn

import multigpu as mg

EXPECTED = {"equal": True, "note": "looks at several samples together"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 8, generator=generator)
    return x, x[:, :3].sin().sum(1)


def loss(output: Tensor, target: Tensor) -> Tensor:
    errors = (output - target).square()
    return errors.topk(max(1, len(errors) // 2)).values.mean()


job = mg.Job(Net, batch, loss, mg.SGD(0.1), batch_size=8)
