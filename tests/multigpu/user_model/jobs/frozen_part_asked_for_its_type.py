"""A frozen part whose parameters the model asks for their type, and penalises."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True, "fixed": ["a.weight", "a.bias"]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)
        self.a.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.a(x.to(next(self.a.parameters()).dtype)))
        size = sum(each.square().sum() for each in self.parameters())
        return self.b(hidden).squeeze(1) + 1e-3 * size


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 8, generator=generator), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
