"""Which items each shard takes: a data set's by epoch, or a corpus's by bucket (000)."""

from collections import deque
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from multigpu.inputs.batch import Source
from multigpu.placements.resolve import shard_sizes
from multigpu.spec.run import Run

BUCKETS = 6
WIDTH = 10


def bucket_of(target_words: np.ndarray) -> np.ndarray:
    """min(5, target words // 10), for an array of any shape: six buckets (document 000)."""
    return np.minimum(BUCKETS - 1, target_words // WIDTH)


def plan_epoch(buckets: np.ndarray, shard_sizes: Sequence[int]) -> np.ndarray:
    """Which sentences each step of one epoch takes: shape (steps, global batch), ranks side by side
    in each row; none twice in a step. Sentences wait in their bucket in the order given. Whenever a
    bucket holds enough for the shard whose turn it is, that shard takes them, then it is the next
    rank's turn: so every shard draws its own batch, and shards of one step sit in different
    buckets, as document 000's towers do. At the end fewer than a batch wait in each bucket. They
    are taken too, shortest bucket first, in batches that mix neighbouring buckets, and the last
    step is filled up as that of `Epochs`.
    """
    waiting: list[deque[int]] = [deque() for _ in range(BUCKETS)]
    taken: list[int] = []
    rank = 0
    for sentence, bucket in enumerate(buckets.tolist()):
        queue = waiting[bucket]
        queue.append(sentence)
        if len(queue) < shard_sizes[rank]:
            continue
        # the next rank's shard may be smaller, so that a bucket that fell short for this one is
        # full for that one
        while full := next((queue for queue in waiting if len(queue) >= shard_sizes[rank]), None):
            taken += [full.popleft() for _ in range(shard_sizes[rank])]
            rank = (rank + 1) % len(shard_sizes)
    for queue in waiting:
        taken += queue
    return filled_up(np.array(taken, dtype=np.int32), sum(shard_sizes))


def filled_up(order: np.ndarray, joined: int) -> np.ndarray:
    """The order as whole global batches, (steps, joined), the last filled from the beginning."""
    return np.resize(order, (-(-len(order) // joined), joined))


class Epochs(Source):
    """A Source over a data set, in every epoch in an order drawn from (seed, epoch), or in one
    order (`in_order`). An epoch's last step is filled up from its beginning: nothing is left out,
    every shard has its full size, and no item comes twice in a step. A data set smaller than one
    global batch is a ValueError.
    """

    count: int
    steps_per_epoch: int
    in_order = False

    def __init__(self, run: Run, count: int, items: str = "images") -> None:
        self._sizes, self._seed, self._joined = shard_sizes(run), run.seed, sum(shard_sizes(run))
        if count < self._joined:
            raise ValueError(
                f"a global batch of {self._joined} {items} needs at least as many: the data set has"
                f" {count}"
            )
        self.count, self._bounds = count, np.cumsum([0, *shard_sizes(run)])
        self._plan = lru_cache(maxsize=2)(self.plan)
        self.steps_per_epoch = len(self._plan(0))

    def plan(self, epoch: int) -> np.ndarray:
        """Items of each step of one epoch, (steps, global batch), ranks side by side."""
        return filled_up(
            np.random.default_rng([self._seed, epoch]).permutation(self.count), self._joined
        )

    def items(self, step: int, rank: int) -> np.ndarray:
        epoch, within = divmod(step, self.steps_per_epoch)
        return self._plan(0 if self.in_order else epoch)[
            within, self._bounds[rank] : self._bounds[rank + 1]
        ]
