"""A filter in frequencies: complex numbers inside, real parameters."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "trained": ["filter"]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(9, 2) * 0.3)
        self.register_buffer("turn", torch.polar(torch.ones(9), torch.linspace(0, 1, 9)))
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        waves = torch.fft.rfft(x) * torch.view_as_complex(self.filter) * self.turn
        return self.b(torch.fft.irfft(waves, n=16)).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 16, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
