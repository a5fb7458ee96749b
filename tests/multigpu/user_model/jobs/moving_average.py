"""A layer's moving average, which a hook makes before each pass."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": [], "unchecked": "a second pass over one batch gives another loss"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)
        self.mean = copy.deepcopy(self.a).requires_grad_(False)
        self.register_forward_pre_hook(Net.follow)

    @torch.no_grad()
    def follow(self, inputs: tuple[Tensor, ...]) -> None:
        for mean, now in zip(self.mean.parameters(), self.a.parameters(), strict=True):
            mean.lerp_(now, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        teacher, own = self.mean(x).detach(), self.a(x)
        return self.b(torch.relu(own)).squeeze(1) + 0.1 * (own - teacher).square().mean(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
