"""What every input hands to every engine: one shard of one step's joined batch, as numpy arrays with its counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np


@dataclass(frozen=True)
class Draw:
    """An array that the engine draws on its own device, so that synthetic images never cross the host's bus.

    The same `shape`, `law` and `seed` give the same numbers on devices of one type.
    `normal` is N(0, 1) in the model's floating-point type; `labels` is uniform over 0 .. classes - 1 (int64).
    """

    shape: tuple[int, ...]
    law: Literal["normal", "labels"]
    seed: int
    classes: int = 0


@dataclass(frozen=True)
class Batch:
    """One replica's shard of one step.

    arrays: name -> array (integers int64, images float32, NCHW) or `Draw`. Images of uint8 are pixels of 0 .. 255, NHWC, which the
        engine normalises on its device (`Run.image_dtype`).
    rank: the shard's index; `len(loss_terms)` shards make the joined batch.
    units: words, images or rows of reviews as the documents count them (padding left out); padded_units: with padding.
    loss_terms: of every shard of this step, how many terms its loss sums (target words, images, rows).
    lookups: of every shard of this step, embedding variable -> how many rows it looks up (padding included, since
        padded positions are looked up too). Every rank knows the plan, so no rank has to ask for these numbers.
    """

    arrays: dict[str, np.ndarray | Draw]
    rank: int
    units: int
    padded_units: int
    loss_terms: tuple[int, ...]
    lookups: tuple[dict[str, int], ...]

    @property
    def joined_loss_terms(self) -> int:
        """Terms in the loss of the joined batch: what the gradient's mean is taken over."""
        return sum(self.loss_terms)


def batch_of_rows(
    rank: int, shard_sizes: Sequence[int], arrays: Mapping[str, np.ndarray | Draw], lookups: Mapping[str, int] | None = None
) -> Batch:
    """A shard of which each row is one unit and one term of the loss, and nothing is padded.

    lookups: of one row, embedding variable -> rows that it looks up.
    """
    count = shard_sizes[rank]
    every = tuple({name: size * each for name, each in (lookups or {}).items()} for size in shard_sizes)
    return Batch(dict(arrays), rank, units=count, padded_units=count, loss_terms=tuple(shard_sizes), lookups=every)


class Source(Protocol):
    """An endless, deterministic plan of joined batches: the same on every rank, so that shards need no messages.

    label: how tables name this input ("synthetic", "synthetic lengths of 000", "de-en catalogs", "digits").
    period: after how many steps batches repeat, so that an engine may keep them on its device; None if they do not.
    capacity: embedding variable -> the most rows that one shard of any step looks up.
    fingerprint: SHA-256 over what determines the data: the law and its seed, or the files and the vocabulary.
    """

    @property
    def label(self) -> str: ...

    @property
    def period(self) -> int | None: ...

    @property
    def capacity(self) -> dict[str, int]: ...

    @property
    def fingerprint(self) -> str: ...

    def batch(self, step: int, rank: int) -> Batch:
        """The shard of `rank` in step `step` (0, 1, ...)."""
        ...
