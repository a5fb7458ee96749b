"""Four experts, of which each sample reaches one."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {
    "cheap": True,
    "equal": True,
    "fixed": [],
    "trained": ["experts.0.weight", "experts.1.weight", "experts.2.weight", "experts.3.weight"],
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        shares = self.gate(x).softmax(1)
        chosen = shares.argmax(1)
        y = torch.zeros(len(x))
        for index, expert in enumerate(self.experts):
            mine = chosen == index
            if mine.any():
                rows = mine.nonzero()[:, 0]
                y = y.index_put((rows,), expert(x[mine]).squeeze(1) * shares[mine, index])
        return y


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=64)
