"""A hook that changes the ids before a table sees them."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "tables": []}


def shifted(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return ((inputs[0] + 1) % 50,)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e = nn.Embedding(50, 16)
        self.e.register_forward_pre_hook(shifted)
        self.o = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.o(self.e(x)).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randint(50, (n,), generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
