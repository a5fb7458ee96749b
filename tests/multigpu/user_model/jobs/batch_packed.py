"""A packed sequence, whose first axis counts words."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import multigpu as mg

EXPECTED = {"refused": r"batch\[0\] is a PackedSequence.*pack them inside", "line": ""}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[PackedSequence, Tensor]:
    x = torch.randn(n, 5, 8, generator=generator)
    packed = pack_padded_sequence(x, torch.full((n,), 5), batch_first=True)
    return packed, torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
