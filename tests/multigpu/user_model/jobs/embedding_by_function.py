"""A table looked up once by its layer and once by F.embedding."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"cheap": True, "equal": True, "tables": [], "note": "e.weight .* travels whole"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e = nn.Embedding(50, 16)
        self.o = nn.Linear(32, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.o(torch.cat([self.e(x), F.embedding(y, self.e.weight)], 1)).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
    x, y = torch.randint(50, (2, n), generator=generator)
    return (x, y), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
