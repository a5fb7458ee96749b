"""What all problems have in common: the fields of their description, and which rows a batch takes."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]


class Description(BaseModel):
    """Common to all problems.

    batch_size: rows of one gradient, drawn with replacement from the worker's shard; as many as the shard has: all of it, in order.
    shards: worker w draws from the rows whose index is w modulo `shards`; 1: every worker draws from all rows.
    seed: of the generated data and of the draws.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    batch_size: Count = 32
    shards: Count = 1
    seed: Annotated[int, Field(ge=0)] = 0

    def _check_shards(self, rows: int) -> None:
        if self.shards > rows:
            raise ValueError(f"{rows} rows cannot be split into {self.shards} shards")


class Batches:
    """The rows of every batch, from the description alone. Draws are made by the block: making a generator takes longer than a draw."""

    BLOCK = 32

    def __init__(self, description: Description, rows: int) -> None:
        self.description, self.rows = description, rows
        self._held: dict[int, tuple[int, np.ndarray]] = {}  # by worker, its latest block

    def rows_of(self, worker: int, draw: int) -> np.ndarray:
        """Indices of rows, [batch_size]."""
        shards, size = self.description.shards, self.description.batch_size
        shard = worker % shards
        count = len(range(shard, self.rows, shards))
        if size == count:
            return np.arange(shard, self.rows, shards)
        number, place = divmod(draw, self.BLOCK)
        held, block = self._held.get(worker, (-1, np.empty(0)))
        if held != number:
            generator = np.random.default_rng((self.description.seed, 3, worker, number))
            block = shard + shards * generator.integers(count, size=(self.BLOCK, size))
            self._held[worker] = number, block
        return block[place]
