"""A weight that the module also keeps in a list."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

# FSDP2 gives the layer another parameter, and the list keeps the first one, which nothing trains
EXPECTED = {
    "cheap": True,
    "equal": ["ddp", "exp2", "exp4", "zero1"],
    "unequal": ["fsdp2"],
    "trained": ["a.weight"],
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)
        self.kept = [self.a.weight]

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(torch.relu(self.a(x))).squeeze(1)
        return y + (x @ self.kept[0].T).sum(1) * 0.01


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
