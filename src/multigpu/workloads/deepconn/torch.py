"""The two-tower model in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.workloads.base import Model
from multigpu.workloads.deepconn.description import TABLE, TOWERS, DeepconnConfig


def build(model: Model, layout: str | None = None) -> nn.Module:
    """The module of a two-tower model, its parameters uninitialised (and on the meta device if built under it).

    Raises:
        ValueError: a layout is named; only images have one.
    """
    if layout is not None:
        raise ValueError(f"layout {layout!r} has no meaning for reviews: leave it out")
    return Deepconn(model)


class Deepconn(nn.Module):
    """Sum of a shard's squared errors over its rows; parameters are the description's variables, name by name."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.config: DeepconnConfig = model.config
        for variable in model.variables:
            self.register_parameter(variable.name, nn.Parameter(torch.empty(variable.shape)))
        self.join: Callable[[Tensor, Tensor], Tensor] = self.dot if self.config.factors is None else self.machine
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
        user, item = (self.tower(name, text) for name, text in zip(TOWERS, words.split(self.config.length, 1), strict=True))
        return self.join(user, item)

    def tower(self, name: str, text: Tensor) -> Tensor:
        """One text of each row, (B, length, embedding) -> (B, dense)."""
        x = F.conv1d(
            text.transpose(1, 2), self.get_parameter(f"{name}_conv_kernel"), self.get_parameter(f"{name}_conv_bias")
        )  # (B, filters, positions)
        x = F.max_pool1d(torch.tanh(x), self.config.pool, stride=1)
        x = x.transpose(1, 2).flatten(1)  # position by position, as the document flattens: (B, flat)
        return F.relu(F.linear(x, self.get_parameter(f"{name}_dense_kernel"), self.get_parameter(f"{name}_dense_bias")))

    def dot(self, user: Tensor, item: Tensor) -> Tensor:
        """The document's rating: (B, dense) twice -> (B,)."""
        return (user * item).sum(1)

    def machine(self, user: Tensor, item: Tensor) -> Tensor:
        """The paper's, a factorisation machine of second order over both towers: w0 + sum w_i z_i + sum over i < j of <v_i, v_j> z_i z_j.

        The pairs' sum is half of (sum v_i z_i)^2 - sum (v_i z_i)^2, summed over the factors.
        """
        weights, factors = self.get_parameter("machine_weights"), self.get_parameter("machine_factors")
        z = torch.cat((user, item), 1)  # (B, 2 x dense)
        pairs = (z @ factors).square() - z.square() @ factors.square()  # (B, factors)
        return self.get_parameter("machine_bias") + (z @ weights).squeeze(1) + pairs.sum(1) / 2
