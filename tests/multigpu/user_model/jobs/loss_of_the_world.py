"""A loss that is divided by the number of processes."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {
    "equal": [],
    "unequal": ["ddp", "exp2", "exp4", "zero1", "fsdp2"],
    "note": "asks torch.distributed for other processes",
    "twice": True,
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


def shared(output: Tensor, target: Tensor) -> Tensor:
    world = dist.get_world_size() if dist.is_initialized() else 1
    return F.mse_loss(output, target) / world


job = mg.Job(Net, batch, shared, mg.SGD(0.1), batch_size=16)
