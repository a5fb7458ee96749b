"""A recommender whose tables hold nearly all bytes."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"cheap": True, "equal": True, "tables": ["users.weight", "items.weight"]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(15_000, 8)
        self.items = nn.Embedding(5_000, 8)
        self.top = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return self.top(torch.cat([self.users(user), self.items(item)], 1)).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
    user = torch.randint(15_000, (n,), generator=generator)
    item = torch.randint(5_000, (n,), generator=generator)
    return (user, item), torch.rand(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.01), batch_size=16)
