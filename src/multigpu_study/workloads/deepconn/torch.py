"""The two-tower model in PyTorch, and what each of its stages computes."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.spec.model import Model
from multigpu_study.workloads.deepconn.description import (
    TOWERS,
    Compute,
    DeepconnConfig,
    stages_of,
    through_tower,
)
from multigpu_study.workloads.deepconn.reviews import TABLE


def stage_functions(model: Model) -> dict[str, Compute]:
    """Stage -> what it computes."""
    config: DeepconnConfig = model.config
    return stages_of(
        embed=lambda table, ids: F.embedding(ids, table),
        # (B, filters, positions)
        conv=lambda x, kernel, bias: torch.tanh(F.conv1d(x.transpose(1, 2), kernel, bias)),
        pool=lambda x: F.max_pool1d(x, config.pool, stride=1),
        flatten=lambda x: x.transpose(1, 2).flatten(1),
        dense=lambda x, kernel, bias: F.relu(F.linear(x, kernel, bias)),
        error=lambda user, item, ratings: F.mse_loss(joined(user, item), ratings, reduction="sum"),
    )


def joined(user: Tensor, item: Tensor) -> Tensor:
    """Ratings from both towers, (B, dense) twice -> (B,): their dot product."""
    return (user * item).sum(1)


def build(model: Model) -> nn.Module:
    """The module of a two-tower model, its parameters uninitialised."""
    return Deepconn(model)


class Deepconn(nn.Module):
    """Sum of a shard's squared errors; parameters are the description's variables by name."""

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
        """Of words (B, 2 x length) int64, the user's first, and ratings (B,); rows: the table's, if
        looked up, (B, 2 x length, width).
        """
        if rows and TABLE in rows:
            found = rows[TABLE]
        else:
            found = F.embedding(batch["words"], getattr(self, TABLE))
        ratings = self.score(found)
        ratings = ratings.float() if ratings.dtype in (torch.bfloat16, torch.float16) else ratings
        return F.mse_loss(ratings, batch["ratings"], reduction="sum")

    def compile_parts(self) -> None:
        self.score = torch.compile(self.both_towers, dynamic=False)

    def both_towers(self, words: Tensor) -> Tensor:
        texts = zip(TOWERS, words.split(self.config.length, 1), strict=True)
        user, item = (
            through_tower(self.stages, self._parameters, tower, text) for tower, text in texts
        )
        return joined(user, item)
