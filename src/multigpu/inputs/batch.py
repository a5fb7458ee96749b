"""Define a shard of a step's global batch, and how batches reach a step in any framework."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy as np


@dataclass(frozen=True)
class Draw:
    """An array that the engine draws on its own device: one `shape`, `law` and `seed` give the same
    numbers on devices of one type. `normal` is N(0, 1) in the model's floating-point type; `labels`
    is uniform over 0 .. classes - 1 (int64).
    """

    shape: tuple[int, ...]
    law: Literal["normal", "labels"]
    seed: int
    classes: int = 0


@dataclass(frozen=True)
class Batch:
    """One replica's shard of one step, the `rank`th of `len(loss_terms)`.
    arrays: name -> array (integers int64, images float32, NCHW) or `Draw`. Images of uint8 are
        pixels of 0 .. 255, NHWC, which the engine normalises on its device (`Run.image_dtype`).
    units: words, images or rows of reviews as the documents count them (padding left out);
        padded_units: with padding.
    loss_terms: of every shard of this step, how many terms its loss sums (target words, images,
        rows).
    lookups: of every shard of this step, embedding variable -> how many rows it looks up, padding
        included.
    """

    arrays: dict[str, np.ndarray | Draw]
    rank: int
    units: int
    padded_units: int
    loss_terms: tuple[int, ...]
    lookups: tuple[dict[str, int], ...]

    @property
    def global_loss_terms(self) -> int:
        """Terms in the loss of the global batch: what the gradient's mean is taken over."""
        return sum(self.loss_terms)


def batch_of_rows(
    rank: int,
    shard_sizes: Sequence[int],
    arrays: Mapping[str, np.ndarray | Draw],
    lookups: Mapping[str, int] | None = None,
) -> Batch:
    """A shard of rows, each one unit and one term of the loss. lookups: of one row."""
    count = shard_sizes[rank]
    every = tuple(
        {name: size * each for name, each in (lookups or {}).items()} for size in shard_sizes
    )
    return Batch(
        dict(arrays),
        rank,
        units=count,
        padded_units=count,
        loss_terms=tuple(shard_sizes),
        lookups=every,
    )


class Source(ABC):
    """An endless plan of global batches, which every rank can work out alone, so that shards need
    no messages.
    label: how tables name this input. fingerprint: SHA-256 over what determines the data: the law
        and its seed, or files and vocabulary.
    period: after how many steps batches repeat, so that an engine may keep them on its device; None
        if they do not.
    capacity: embedding variable -> the most rows that one shard of any step looks up.
    steps_per_epoch: global batches after which every item of its data set has been read; None: it
        has no epochs.
    count: items of its data set, which `items` names; None: it does not.
    """

    label: str
    period: int | None = None
    capacity: dict[str, int] = {}
    fingerprint: str
    steps_per_epoch: int | None = None
    count: int | None = None

    @abstractmethod
    def batch(self, step: int, rank: int) -> Batch:
        """The shard of `rank` in step `step` (0, 1, ...)."""

    def items(self, step: int, rank: int) -> np.ndarray:
        """Numbers 0 .. count - 1 of the items in `batch(step, rank)`, shape (n,), int64."""
        raise NotImplementedError

    def held_out(self) -> Any:
        """Return what no batch ever holds, in a form that its workload knows; None: nothing."""
        return None


Given = TypeVar("Given")  # what a framework gives a step: tensors on its devices


def plain_arrays(batch: Batch) -> dict[str, np.ndarray]:
    """A batch's arrays, which must be numbers of the host: reviews are never drawn on a device."""
    return {name: array for name, array in batch.arrays.items() if isinstance(array, np.ndarray)}


class Feeding(ABC, Generic[Given]):
    """A copy to the devices in every step. Batches that repeat stay on the host as numpy arrays, or
    on the devices with `mode` None.
    mode: "arrays", "strings": copied when the step asks. "pipeline": one step ahead, by another
        thread (also where nothing repeats).
    ranks: of the shards of one step. waits: step -> seconds until the host had what the step is
        given; empty where that is kept.
    """

    ranks: tuple[int, ...]

    def __init__(self, source: Source, mode: str | None) -> None:
        self.source = source
        self.keep = mode is None and bool(source.period)
        self.pipeline = not self.keep and mode not in ("arrays", "strings")
        self.waits: dict[int, float] = {}
        self.placed: dict[int, Given] = {}
        self.ready: dict[int, list[Batch]] = {}
        self.thread = ThreadPoolExecutor(max_workers=1) if self.pipeline else None
        self.next: tuple[int, Future[Given]] | None = None

    @abstractmethod
    def put_all(self, batches: list[Batch]) -> Given:
        """New copies of the shards of one step, by rank, where the step wants them."""

    def given(self, step: int) -> Given:
        if self.keep:
            index = step % (self.source.period or 1)
            if index not in self.placed:
                self.placed[index] = self._made(step)
            return self.placed[index]
        began = time.perf_counter()
        if self.thread is None:
            made = self._made(step)
        else:
            made = self.next[1].result() if self.next and self.next[0] == step else self._made(step)
            self.next = (step + 1, self.thread.submit(self._made, step + 1))
        self.waits[step] = time.perf_counter() - began
        return made

    def settle(self) -> None:
        """Wait until the batch that is made ahead is made, or has failed."""
        if self.next:
            self.next[1].exception()

    def _made(self, step: int) -> Given:
        period = self.source.period
        index = step % period if period else step
        batches = self.ready.get(index) or [self.source.batch(index, rank) for rank in self.ranks]
        if period:
            self.ready[index] = batches
        return self.put_all(batches)

    def close(self) -> None:
        if self.thread:
            self.thread.shutdown(cancel_futures=True)
