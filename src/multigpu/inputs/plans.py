"""Which items each shard of each step takes: a data set's in a new order in every epoch, or a corpus's bucket by bucket (document 000)."""

from collections import deque
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from multigpu.run import Batching

BUCKETS = 6
WIDTH = 10


def bucket_of(target_words: np.ndarray) -> np.ndarray:
    """min(5, target words // 10), for an array of any shape: six buckets, the last one open (document 000)."""
    return np.minimum(BUCKETS - 1, target_words // WIDTH)


def plan_batches(buckets: np.ndarray, shard_sizes: Sequence[int], batching: Batching) -> np.ndarray:
    """The epoch's plan in one of the modes of a Run: shape (steps, joined batch), ranks side by side in each row.

    "own": as `plan_epoch`. "shared": as for one shard of the joined batch's size, so that all shards of a step come from one
    bucket. "fixed": as the sentences stand, whatever their lengths.

    Args:
        buckets: shape (sentences,), the bucket of each.
        shard_sizes: sentences of each rank's shard.
    """
    if batching == "fixed":
        buckets = np.zeros_like(buckets)
    return plan_epoch(buckets, shard_sizes if batching == "own" else [sum(shard_sizes)])


def plan_epoch(buckets: np.ndarray, shard_sizes: Sequence[int]) -> np.ndarray:
    """Which sentences each step of one epoch takes: shape (steps, joined batch), ranks side by side in each row.

    Sentences wait in their bucket in the order given. Whenever a bucket holds enough for the shard whose turn it is, that
    shard takes them, then it is the next rank's turn: so every shard draws its own batch, and shards of one step sit in
    different buckets, as document 000's towers do.

    At the epoch's end fewer than a batch wait in each bucket. They are taken too, shortest bucket first, in batches that mix
    neighbouring buckets, and the last step is filled up with sentences from the epoch's beginning. So nothing is left out,
    every shard always has its full size, and less than one joined batch is seen twice. Within a step no sentence comes twice.

    Args:
        buckets: shape (sentences,), the bucket of each.
        shard_sizes: sentences of each rank's shard.

    Raises:
        ValueError: the corpus is smaller than one joined batch; the sentence names both numbers.
    """
    joined = sum(shard_sizes)
    if len(buckets) < joined:
        raise ValueError(f"a joined batch of {joined} sentences needs at least as many pairs: the corpus has {len(buckets)}")
    waiting: list[deque[int]] = [deque() for _ in range(BUCKETS)]
    taken: list[int] = []
    rank = 0
    for sentence, bucket in enumerate(buckets.tolist()):
        queue = waiting[bucket]
        queue.append(sentence)
        if len(queue) < shard_sizes[rank]:
            continue
        # the next rank's shard may be smaller, so that a bucket that fell short for this one is full for that one
        while full := next((queue for queue in waiting if len(queue) >= shard_sizes[rank]), None):
            taken += [full.popleft() for _ in range(shard_sizes[rank])]
            rank = (rank + 1) % len(shard_sizes)
    for queue in waiting:
        taken += queue
    taken += taken[: -len(taken) % joined]
    return np.array(taken, dtype=np.int32).reshape(-1, joined)


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
