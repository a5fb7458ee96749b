"""Which items of a data set each shard of each step takes: all of them in every epoch, in a new order each time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np


class ShuffledEpochs:
    """An endless plan over `count` items; every rank can work out every shard.

    An epoch is ceil(count / joined batch) steps in an order drawn from (seed, epoch). Its last step is filled up with items
    from the same epoch's beginning, so nothing is left out, every shard always has its full size, and less than one joined
    batch is seen twice. Within a step no item comes twice.

    Raises:
        ValueError: the data set is smaller than one joined batch; the sentence names both numbers.
    """

    def __init__(self, count: int, shard_sizes: Sequence[int], seed: int, items: str = "images") -> None:
        self._joined = sum(shard_sizes)
        if count < self._joined:
            raise ValueError(f"a joined batch of {self._joined} {items} needs at least as many: the data set has {count}")
        self._count, self._seed = count, seed
        self._bounds = np.cumsum([0, *shard_sizes])
        self._order = lru_cache(maxsize=2)(self._draw_order)

    @property
    def steps_per_epoch(self) -> int:
        """Steps after which every item has been seen."""
        return -(-self._count // self._joined)

    def _draw_order(self, epoch: int) -> np.ndarray:
        order = np.random.default_rng([self._seed, epoch]).permutation(self._count)
        return np.concatenate([order, order[: self.steps_per_epoch * self._joined - self._count]])

    def chosen(self, step: int, rank: int) -> np.ndarray:
        """Items of one shard, shape (shard size,)."""
        epoch, within = divmod(step, self.steps_per_epoch)
        start = within * self._joined
        return self._order(epoch)[start + self._bounds[rank] : start + self._bounds[rank + 1]]
