"""A loss that holds weights of classes, by which its mean is divided."""

import torch
from torch import Tensor, nn

import multigpu as mg

EXPECTED = {"equal": True, "note": "mean over what samples have unequally much of"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


def batch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    label = torch.randint(0, 5, (n,), generator=generator)
    return torch.randn(n, 8, generator=generator), label


loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
job = mg.Job(Net, batch, loss, mg.SGD(0.1), batch_size=16)
