"""A batch with lists inside, which the model tells from tuples."""

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True}


@dataclasses.dataclass
class Views:
    """The views of each sample, and what is known of them."""

    views: list[Tensor]
    known: dict[str, tuple[Tensor, ...]]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, given: Views, more: list[Tensor]) -> Tensor:
        x = given.views
        x = sum(x) if isinstance(x, list) else x[0]
        x = x + (given.known["mean"][0] if isinstance(given.known["mean"], tuple) else 0)
        x = x * (more[0] if isinstance(more, list) else 1)
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[list, Tensor]:
    x, y, z = torch.randn(3, n, 8, generator=generator)
    given = Views([x, y], {"mean": ((x + y) / 2,)})
    return [given, [z]], torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
