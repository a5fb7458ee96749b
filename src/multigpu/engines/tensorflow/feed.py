"""From a framework-free Source to tensors on every replica's device."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.module import Tensors
from multigpu.inputs.batch import Batch, Draw, Source
from multigpu.placements import find_placement
from multigpu.placements.traffic import HOST
from multigpu.run import Run


@dataclass(frozen=True)
class Shard:
    """One replica's part of a step. Ids and lengths stand on the host too, as `<name>_host` (lengths int32, as cuDNN wants)."""

    batch: Batch
    tensors: Tensors


def is_even(source: Source, replicas: int) -> bool:
    """Whether every sentence of every batch has the same length, and no target is padded."""
    if source.period != 1:
        return False
    batches = [source.batch(0, rank) for rank in range(replicas)]
    for batch in batches:
        for name, array in batch.arrays.items():
            if name.endswith("_length") and isinstance(array, np.ndarray):
                of = batch.arrays[{"source_length": "source", "target_length": "target_output"}[name]]
                if isinstance(of, np.ndarray) and (array != of.shape[1]).any():
                    return False
    return True


def seed_of(law: Draw) -> list[int]:
    """A law's seed as TensorFlow wants it."""
    return [law.seed & 0x7FFFFFFF, law.seed >> 31]


def drawn(law: Draw, seed: list[int] | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The array that a law says, on the device in scope."""
    if law.law == "labels":
        return tf.random.stateless_uniform(law.shape, seed, 0, law.classes, dtype=tf.int64)
    return tf.cast(tf.random.stateless_normal(law.shape, seed, dtype=tf.float32), dtype)


def slices_joined_batch(run: Run) -> bool:
    """Whether the first device holds the joined batch of every step and slices it over the replicas."""
    return find_placement(run.placement).loss == "gpu0"


def join_shards(shards: list[Shard], devices: Devices) -> list[Shard]:
    """The same shards, the tensors of all as one joined batch with the first of them."""
    joined: Tensors = {}
    for name in shards[0].tensors:
        with devices.at(HOST if name.endswith("_host") else 0):
            joined[name] = tf.concat([shard.tensors[name] for shard in shards], 0)
    return [Shard(shard.batch, {} if index else joined) for index, shard in enumerate(shards)]


class Feed:
    """Shards of all replicas, step after step. Batches that repeat are kept on the devices; others are fetched one ahead.

    join: whether each step's are joined on the first device.
    waits: step -> seconds that the host waited until it had them; empty for batches that are kept.
    """

    def __init__(self, source: Source, devices: Devices, join: bool = False) -> None:
        self.source, self.devices, self.join = source, devices, join
        self.kept: dict[int, list[Shard]] = {}
        self.waits: dict[int, float] = {}
        self.pool = None if source.period else ThreadPoolExecutor(max_workers=1)
        self.ahead: tuple[int, Future[list[Shard]]] | None = None

    def shards(self, step: int) -> list[Shard]:
        """The shard of every replica in step `step`, by rank."""
        if self.source.period:
            index = step % self.source.period
            if index not in self.kept:
                self.kept[index] = self._make(index)
            return self.kept[index]
        assert self.pool
        began = time.perf_counter()
        shards = self.ahead[1].result() if self.ahead and self.ahead[0] == step else self._make(step)
        self.waits[step] = time.perf_counter() - began
        self.ahead = (step + 1, self.pool.submit(self._make, step + 1))
        return shards

    def _make(self, step: int) -> list[Shard]:
        batches = [self.source.batch(step, rank) for rank in self.devices.ranks]
        if self.join:
            return join_shards([self._place(batch, 0) for batch in batches], self.devices)
        return [self._place(batch, place) for place, batch in enumerate(batches)]

    def _draw(self, law: Draw) -> tf.Tensor:
        return drawn(law, seed_of(law), self.devices.dtype)

    def _place(self, batch: Batch, place: int) -> Shard:
        tensors: Tensors = {}
        for name, array in batch.arrays.items():
            with self.devices.at(place):
                if isinstance(array, Draw):
                    tensors[name] = self._draw(array)
                    continue
                tensor = tf.constant(array)
                tensors[name] = tf.cast(tensor, self.devices.dtype) if tensor.dtype.is_floating else tf.identity(tensor)
            if tensor.dtype.is_integer:
                with self.devices.at(HOST):
                    tensors[f"{name}_host"] = tf.constant(array, tf.int32 if name.endswith("_length") else tf.int64)
        return Shard(batch, tensors)

    def close(self) -> None:
        """Stop fetching ahead."""
        if self.pool:
            self.pool.shutdown(cancel_futures=True)
