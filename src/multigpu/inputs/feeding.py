"""How batches reach a step, whatever the framework: kept on its devices, made when the step asks, or one step ahead."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import numpy as np

from multigpu.inputs.batch import Batch, Source

Given = TypeVar("Given")
"""What a framework gives a step: tensors on its devices."""


def plain_arrays(batch: Batch) -> dict[str, np.ndarray]:
    """A batch's arrays, which must be numbers of the host: reviews are never drawn on a device."""
    return {name: array for name, array in batch.arrays.items() if isinstance(array, np.ndarray)}


class Feeding(ABC, Generic[Given]):
    """A copy to the devices in every step. Batches that repeat stay on the host as numpy arrays, or on the devices with `mode` None.

    mode: "arrays", "strings": copied when the step asks. "pipeline": one step ahead, by another thread (also what None does with batches
        that do not repeat).
    ranks: of the shards of one step.
    waits: step -> seconds that the host waited until it had what the step is given; empty where that is kept.
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
        """What step `step` is given, whatever the order."""
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

    def _made(self, step: int) -> Given:
        if not self.source.period:
            return self.put_all(self._batches(step))
        index = step % self.source.period
        if index not in self.ready:
            self.ready[index] = self._batches(index)
        return self.put_all(self.ready[index])

    def _batches(self, step: int) -> list[Batch]:
        return [self.source.batch(step, rank) for rank in self.ranks]

    def close(self) -> None:
        """Stop fetching ahead."""
        if self.thread:
            self.thread.shutdown(cancel_futures=True)
