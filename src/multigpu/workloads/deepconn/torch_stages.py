"""What each stage of the two-tower model computes, in PyTorch; shapes as `torch.py` gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from multigpu.workloads.base import Model
from multigpu.workloads.deepconn.description import TABLE, TOWERS, DeepconnConfig

Values = Mapping[str, Any]
Compute = Callable[[Values, Sequence[Tensor], Sequence[Tensor]], Tensor]
"""From the stage's variables, the outputs that it reads and the arrays that it reads to its own output."""


def stage_functions(model: Model) -> dict[str, Compute]:
    """Stage -> what it computes. The last one returns the sum of the squared errors."""
    config: DeepconnConfig = model.config
    found: dict[str, Compute] = {}
    for tower in TOWERS:

        def embed(values: Values, inputs: Sequence[Tensor], arrays: Sequence[Tensor]) -> Tensor:
            return F.embedding(arrays[0], values[TABLE])  # (B, length, embedding)

        def conv(values: Values, inputs: Sequence[Tensor], arrays: Sequence[Tensor], tower: str = tower) -> Tensor:
            x = F.conv1d(inputs[0].transpose(1, 2), values[f"{tower}_conv_kernel"], values[f"{tower}_conv_bias"])
            return torch.tanh(x)  # (B, filters, positions)

        def pool(values: Values, inputs: Sequence[Tensor], arrays: Sequence[Tensor]) -> Tensor:
            return F.max_pool1d(inputs[0], config.pool, stride=1)

        def flatten(values: Values, inputs: Sequence[Tensor], arrays: Sequence[Tensor]) -> Tensor:
            return inputs[0].transpose(1, 2).flatten(1)  # position by position: (B, flat)

        def dense(values: Values, inputs: Sequence[Tensor], arrays: Sequence[Tensor], tower: str = tower) -> Tensor:
            return F.relu(F.linear(inputs[0], values[f"{tower}_dense_kernel"], values[f"{tower}_dense_bias"]))

        found |= {f"{tower}_{name}": f for name, f in (("embed", embed), ("conv", conv), ("pool", pool), ("flatten", flatten))}
        found[f"{tower}_dense"] = dense

    def rating(values: Values, inputs: Sequence[Tensor], arrays: Sequence[Tensor]) -> Tensor:
        return F.mse_loss(joined(config, values, *inputs), arrays[0], reduction="sum")

    found["rating"] = rating
    return found


def through_tower(stages: Mapping[str, Compute], values: Values, tower: str, text: Tensor) -> Tensor:
    """One text of each row through all stages of its tower, (B, length, embedding) -> (B, dense)."""
    for stage in ("conv", "pool", "flatten", "dense"):
        text = stages[f"{tower}_{stage}"](values, [text], [])
    return text


def joined(config: DeepconnConfig, values: Values, user: Tensor, item: Tensor) -> Tensor:
    """Ratings from both towers, (B, dense) twice -> (B,): the document's dot product, or the paper's factorisation machine of second
    order over both, w0 + sum w_i z_i + sum over i < j of <v_i, v_j> z_i z_j, whose last sum is half of (sum v_i z_i)^2 - sum (v_i z_i)^2,
    summed over the factors.
    """
    if config.factors is None:
        return (user * item).sum(1)
    weights, factors = values["machine_weights"], values["machine_factors"]
    z = torch.cat((user, item), 1)  # (B, 2 x dense)
    pairs = (z @ factors).square() - z.square() @ factors.square()  # (B, factors)
    return values["machine_bias"] + (z @ weights).squeeze(1) + pairs.sum(1) / 2
