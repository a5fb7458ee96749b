"""A bag of rows, with sparse gradients asked for."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "trained": ["bag.weight"]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(50, 16, mode="sum", sparse=True)
        self.o = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.o(self.bag(x)).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randint(50, (n, 5), generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.01), batch_size=16)
