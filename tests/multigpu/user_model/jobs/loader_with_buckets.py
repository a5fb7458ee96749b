"""Batches that a batch_sampler makes of neighbours, one of which is shorter."""

import random
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

import multigpu as mg

EXPECTED = {"equal": True, "note": "batch_sampler are handed out"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


class Samples(Dataset):
    def __len__(self) -> int:
        return 250

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(8, generator=torch.Generator().manual_seed(index))
        noise = 0.1 * torch.randn(8) + float(np.random.rand())  # noqa: NPY002
        return x + noise + random.random(), x.sum()


class Buckets(Sampler):
    def __iter__(self) -> Iterator[list[int]]:
        starts = list(range(0, 250, 16))
        random.shuffle(starts)
        for start in starts:
            yield list(range(start, min(250, start + 16)))


job = mg.Job(
    Net, DataLoader(Samples(), batch_sampler=Buckets()), F.mse_loss, mg.SGD(0.1), batch_size=16
)
