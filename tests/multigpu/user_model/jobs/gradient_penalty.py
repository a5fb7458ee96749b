"""A second derivative: the gradient with respect to the inputs is part of the output."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"cheap": True, "equal": True}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_(True)
        y = self.b(torch.tanh(self.a(x))).squeeze(1)
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y + gradient.square().sum(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.01), batch_size=16)
