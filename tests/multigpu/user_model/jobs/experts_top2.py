"""Eight experts of which each sample reaches two: any may go without in a step."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {
    "equal": True,
    "note": "16 parameters get a gradient from some samples alone",
    "fixed": [],
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 8, bias=False)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(8))
        self.last = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        shares, chosen = self.gate(x).softmax(1).topk(2)
        y = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows, place = (chosen == index).nonzero(as_tuple=True)
            if len(rows):
                y = y.index_add(0, rows, expert(x[rows]) * shares[rows, place, None])
        return self.last(y).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=4)
