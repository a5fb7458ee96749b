"""The two-tower model in PyTorch, and what each of its stages computes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.workloads.base import Model
from multigpu.workloads.deepconn.description import TABLE, TOWERS, DeepconnConfig, through_tower

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


def build(model: Model) -> nn.Module:
    """The module of a two-tower model, its parameters uninitialised (and on the meta device if built under it)."""
    return Deepconn(model)


class Deepconn(nn.Module):
    """Sum of a shard's squared errors over its rows; parameters are the description's variables, name by name."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.config: DeepconnConfig = model.config
        for variable in model.variables:
            self.register_parameter(variable.name, nn.Parameter(torch.empty(variable.shape)))
        self.stages = stage_functions(model)
        self.score: Callable[[Tensor], Tensor] = self.both_towers

    def lookups(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Both texts of each row in one look-up, (B, 2 x length)."""
        return {TABLE: batch["words"]}

    def forward(self, batch: dict[str, Tensor], rows: dict[str, Tensor] | None = None) -> Tensor:
        """The sum of the loss over the shard's rows, a float32 (or float64) scalar.

        Args:
            batch: words (B, 2 x length) int64, the user's text and then the item's; ratings (B,), floating-point.
            rows: the table's rows looked up elsewhere, (B, 2 x length, embedding); the table is then not touched.
        """
        return F.mse_loss(self.ratings(batch, rows), batch["ratings"], reduction="sum")

    def ratings(self, batch: dict[str, Tensor], rows: dict[str, Tensor] | None = None) -> Tensor:
        """What the model expects each row's rating to be, (B,), in float32 or better."""
        found = rows[TABLE] if rows and TABLE in rows else F.embedding(batch["words"], self.get_parameter(TABLE))
        ratings = self.score(found)
        return ratings.float() if ratings.dtype in (torch.bfloat16, torch.float16) else ratings

    def compile_parts(self) -> None:
        """Compile all that follows the look-up."""
        self.score = torch.compile(self.both_towers, dynamic=False)

    def both_towers(self, words: Tensor) -> Tensor:
        """(B, 2 x length, embedding) -> (B,)."""
        texts = zip(TOWERS, words.split(self.config.length, 1), strict=True)
        user, item = (through_tower(self.stages, self._parameters, tower, text) for tower, text in texts)
        return joined(self.config, self._parameters, user, item)
