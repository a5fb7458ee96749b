"""Models, batches and a plain training on the global batch, for tests of `multigpu.wrap`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

WORDS = 7


class Block(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.narrow(torch.tanh(self.wide(self.norm(x)))))


class Tiny(nn.Module):
    """Repeated blocks between an embedding and a head that share their weight."""

    def __init__(self, width: int = 5, dropout: float = 0.0) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(3))
        self.head = nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        state = self.words(x)
        for block in self.blocks:
            state = block(state)
        return self.head(state)


def tiny(rank: int = 0, **settings: Any) -> nn.Module:
    """The model in fp64; on other ranks than the first from other values."""
    torch.manual_seed(rank)
    return Tiny(**settings).double()


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def batch(step: int, rank: int, rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    words = torch.randint(0, WORDS, (rows, 4), generator=generator)
    return words, words.roll(-1, 1)


def joined(step: int, rows: list[int]) -> tuple[Tensor, Tensor]:
    """The batches of all ranks as one."""
    parts = [batch(step, rank, each) for rank, each in enumerate(rows)]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def plain(
    optimizer: Callable[..., torch.optim.Optimizer],
    rows: list[int],
    steps: int,
    clip: float | None = None,
    schedule: Callable[[int], float] | None = None,
) -> tuple[list[float], dict[str, Tensor]]:
    """Losses and weights of one process that trains on the global batches, in plain PyTorch."""
    model = tiny()
    updates = optimizer(model.parameters())
    rates = torch.optim.lr_scheduler.LambdaLR(updates, schedule) if schedule else None
    losses = []
    for step in range(steps):
        words, target = joined(step, rows)
        updates.zero_grad()
        loss = loss_of(model(words), target)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        updates.step()
        if rates is not None:
            rates.step()
        losses.append(loss.item())
    return losses, model.state_dict()


def apart(state: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The greatest difference of two models' values."""
    assert state.keys() == other.keys()
    return max((state[name] - other[name]).abs().max().item() for name in state)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.125, momentum=0.9)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    """In groups by a parameter's place among all."""
    first, *others = parameters
    return torch.optim.AdamW([{"params": [first], "lr": 0.03}, {"params": others}], lr=0.01)


def falling(step: int) -> float:
    """A schedule whose rates fp32 holds exactly."""
    return 0.5 ** (step // 2)
