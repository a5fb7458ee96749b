"""A DataLoader whose dataset draws noise at every visit."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import multigpu as mg

EXPECTED = {"equal": True, "note": "draws from PyTorch's own generator", "twice": True}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


class Noisy(Dataset):
    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(8, generator=torch.Generator().manual_seed(index))
        return x + 0.1 * torch.randn(8), x.sum()


job = mg.Job(Net, DataLoader(Noisy(), 16, shuffle=True), F.mse_loss, mg.SGD(0.1), batch_size=16)
