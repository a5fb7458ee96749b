"""Three jobs of one model: one whose batches are slow to make, one of whose ranks is slow, and one
without either.
"""

import time

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F

import multigpu as mg

BATCH_S, RANK_S = 0.15, 0.1


class Net(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class SlowOnRankOne(Net):
    """The same, behind a pause on the second of several ranks."""

    def forward(self, x: Tensor) -> Tensor:
        if distributed.is_initialized() and distributed.get_rank() == 1:
            time.sleep(RANK_S)
        return super().forward(x)


def samples(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.rand(n, 64, generator=generator), torch.randint(10, (n,), generator=generator)


def slow_samples(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    time.sleep(BATCH_S)
    return samples(n, generator)


slow_batch = mg.Job(Net, slow_samples, F.cross_entropy, batch_size=256)
slow_rank = mg.Job(SlowOnRankOne, samples, F.cross_entropy, batch_size=256)
plain = mg.Job(Net, samples, F.cross_entropy, batch_size=256)
