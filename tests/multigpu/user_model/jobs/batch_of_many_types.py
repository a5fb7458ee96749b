"""Tensors of many types, views among them, one of which stands in two places."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import multigpu as mg

EXPECTED = {"cheap": True, "equal": True}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(
        self,
        x: Tensor,
        keep: Tensor,
        level: Tensor,
        small: Tensor,
        double: Tensor,
        wave: Tensor,
        lists: Any,
    ) -> Tensor:
        assert keep.dtype == torch.bool
        assert level.dtype == torch.uint8
        assert wave.is_complex()
        (first, nothing), (second,) = lists
        assert nothing is None
        y = torch.where(keep, x, level / 255) + double + wave.abs() + first * second
        y = y + F.pad(small, (0, 4))
        return self.b(torch.relu(self.a(y))).squeeze(1)


def batch(n: int, generator: torch.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    x = torch.randn(8, n, generator=generator).T
    keep = torch.rand(n, 8, generator=generator) < 0.7
    inputs = {
        "x": x,
        "keep": keep,
        "level": torch.randint(256, (n, 8), generator=generator, dtype=torch.uint8),
        "small": x[:, :4].bfloat16(),
        "double": np.flip(x.numpy().astype(">f8"), 1),
        "wave": torch.complex(x, x.flip(1)).conj(),
        "lists": [[x[:, :1], None], (x[:, 1:2],)],
    }
    return inputs, {"x": x, 1: x[:, 0].double()}


def loss(output: Tensor, target: dict[Any, Tensor]) -> Tensor:
    return F.mse_loss(output, target[1]) + (output[:, None] * target["x"]).mean()


job = mg.Job(Net, batch, loss, mg.SGD(0.1), batch_size=16)
