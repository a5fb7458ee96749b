"""A branch that only workers reach, after all that was examined."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {
    "equal": [],
    "fixed": ["late.weight", "late.bias"],
    "note": "a Run in which one gets a gradient stops",
    "failed": {
        "ddp": "late.(weight|bias) got no gradient",
        "exp4": "late.(weight|bias) got no gradient",
    },
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 1)
        self.late = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        if torch.distributed.is_initialized():
            y = y + self.late(x)
        return y.squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
