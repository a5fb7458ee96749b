"""Jobs of small models, each with one thing that takes most of a step planted, and one without any.

The link is slowed in whatever starts a collective: each takes so much longer once all have come.
"""

import time
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F

import multigpu as mg

BATCH_S, RANK_S, LINK_S, LAYER_S = 0.15, 0.1, 0.1, 0.08
ROWS = 150_000


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


class OverSlowLink(Net):
    """The same, in processes whose all-reduces take longer."""

    def __init__(self) -> None:
        super().__init__()
        plain = distributed.all_reduce
        if plain.__name__ == "slowed":
            return

        def slowed(*arguments: Any, **named: Any) -> Any:
            found = plain(*arguments, **named)
            time.sleep(LINK_S)
            return found

        distributed.all_reduce = slowed


class Tiny(nn.Module):
    """Hundreds of operations on a few numbers each."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 10)
        self.scales = nn.Parameter(torch.ones(200))

    def forward(self, x: Tensor) -> Tensor:
        small = x[:1, :4]
        for scale in self.scales.unbind():
            small = small * scale + 0.001
        return self.first(x) + small.sum()


class Table(nn.Module):
    """A table, of which a step looks up few rows, before two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(ROWS, 64)
        self.net = Net()

    def forward(self, x: Tensor) -> Tensor:
        rows = (x[:, 0] * (ROWS - 1)).long()
        return self.net(self.words(rows) + x)


class Pausing(nn.Linear):
    """A layer that waits for something."""

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(LAYER_S)
        return super().forward(x)


class SlowLayer(nn.Module):
    """Three layers, the second of which pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.culprit = nn.Linear(64, 64), Pausing(64, 64)
        self.after = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(F.relu(self.culprit(F.relu(self.before(x)))))


class LargeLayer(nn.Module):
    """Three layers, the second of which computes most."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.large = nn.Linear(64, 1024), nn.Linear(1024, 1024)
        self.after = nn.Linear(1024, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(F.relu(self.large(F.relu(self.before(x)))))


def samples(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.rand(n, 64, generator=generator), torch.randint(10, (n,), generator=generator)


def slow_samples(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    time.sleep(BATCH_S)
    return samples(n, generator)


def job(model: Any, batch: Any = samples, size: int = 256) -> mg.Job:
    return mg.Job(model, batch, F.cross_entropy, batch_size=size)


slow_batch = job(Net, slow_samples)
slow_rank, slow_link = job(SlowOnRankOne), job(OverSlowLink)
tiny_kernels, huge_table = job(Tiny), job(Table)
slow_layer, large_layer = job(SlowLayer), job(LargeLayer, size=512)
plain = job(Net)
