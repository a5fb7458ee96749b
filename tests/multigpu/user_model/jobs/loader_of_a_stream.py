"""A stream of samples, augmented, whose last batch is shorter."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

import multigpu as mg

EXPECTED = {"equal": True, "note": "only be read in its order"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for index in range(100):
            x = torch.randn(8, generator=torch.Generator().manual_seed(index))
            yield x + 0.1 * torch.randn(8), x.sum()


job = mg.Job(Net, DataLoader(Stream(), 16), F.mse_loss, mg.SGD(0.1), batch_size=16)
