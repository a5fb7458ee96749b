"""A file that reads its options from the command line."""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


options = argparse.ArgumentParser()
options.add_argument("--rate", type=float, default=0.1)
job = mg.Job(Net, batch, F.mse_loss, mg.SGD(options.parse_args().rate), batch_size=16)
