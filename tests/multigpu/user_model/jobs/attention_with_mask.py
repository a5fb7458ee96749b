"""Multi-head attention with a mask that the batch brings."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"equal": True}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.b = nn.Linear(8, 1)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        y, _ = self.attention(x, x, x, key_padding_mask=hidden)
        return self.b(y.mean(1)).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
    x = torch.randn(n, 5, 8, generator=generator)
    hidden = torch.arange(5) >= torch.randint(1, 6, (n, 1), generator=generator)
    return (x, hidden), torch.randn(n, generator=generator)


job = mg.Job(Net, batch, F.mse_loss, mg.SGD(0.1), batch_size=16)
