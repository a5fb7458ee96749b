"""A layer that is unfrozen later than any examined step."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {
    "equal": [],
    "note": "2 parameters require no gradient",
    "failed": {"ddp": "unfreezes a.weight"},
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)
        self.a.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        if dist.is_initialized():
            for parameter in self.a.parameters():
                parameter.requires_grad = True
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
