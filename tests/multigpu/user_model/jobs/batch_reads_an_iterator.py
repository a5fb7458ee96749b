"""A batch function that goes through a loader of its own, whatever it is asked for."""

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import multigpu as mg

EXPECTED = {
    "equal": [],
    "unchecked": r"batch ignores its generator: two draws for one seed differ in batch\[0\]",
    "twice": True,
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


LOADER = DataLoader(TensorDataset(torch.randn(640, 8), torch.randn(640)), 16, shuffle=True)
READER = itertools.chain.from_iterable(itertools.repeat(LOADER))


def next_batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return tuple(tensor[:n] for tensor in next(READER))


job = mg.Job(Net, next_batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
