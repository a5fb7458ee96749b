"""The two-tower model in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.workloads.base import Model
from multigpu.workloads.deepconn.description import TABLE, TOWERS, DeepconnConfig
from multigpu.workloads.deepconn.torch_stages import joined, stage_functions, through_tower


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
