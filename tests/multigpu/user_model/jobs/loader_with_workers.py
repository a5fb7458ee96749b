"""Samples that workers augment, drawing from generators of three libraries."""

import random

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import multigpu as mg

EXPECTED = {"equal": True}


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


job = mg.Job(
    Net,
    DataLoader(Samples(), 16, shuffle=True, num_workers=2),
    F.mse_loss,
    mg.SGD(0.1),
    batch_size=16,
)
