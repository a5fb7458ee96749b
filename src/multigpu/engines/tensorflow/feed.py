"""From a framework-free Source to tensors on every replica's device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.module import Tensors
from multigpu.inputs.batch import Batch, Draw, Source
from multigpu.inputs.feeding import Feeding
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


def make_feed(source: Source, devices: Devices) -> Feed:
    """The feed that the devices' Run asks for."""
    return Feed(source, devices, devices.run.feed, slices_joined_batch(devices.run))


class Feed(Feeding[list[Shard]]):
    """Shards of all replicas, step after step; what is copied when the step asks is copied as a feed_dict does.

    join: whether each step's are joined on the first device.
    """

    def __init__(self, source: Source, devices: Devices, mode: str | None = None, join: bool = False) -> None:
        super().__init__(source, mode)
        self.devices, self.join, self.ranks = devices, join, devices.ranks

    def shards(self, step: int) -> list[Shard]:
        """The shard of every replica in step `step`, by rank."""
        return self.given(step)

    def put_all(self, batches: list[Batch]) -> list[Shard]:
        shards = [Shard(batch, self.put(batch, 0 if self.join else place)) for place, batch in enumerate(batches)]
        return join_shards(shards, self.devices) if self.join else shards

    def put(self, batch: Batch, place: int) -> Tensors:
        """The batch's arrays on the device of replica `place`, ids and lengths on the host too."""
        tensors: Tensors = {}
        for name, array in batch.arrays.items():
            if isinstance(array, Draw):
                with self.devices.at(place):
                    tensors[name] = drawn(array, seed_of(array), self.devices.dtype)
                continue
            tensors[name] = self.copied(array, place)
            if tensors[name].dtype.is_integer:
                with self.devices.at(HOST):
                    tensors[f"{name}_host"] = tf.constant(array, tf.int32 if name.endswith("_length") else tf.int64)
        return tensors

    def copied(self, array: np.ndarray, place: int) -> tf.Tensor:
        """A new copy of `array` at `place`, in the Run's type where it is floating-point."""
        with self.devices.at(place):
            tensor = tf.constant(array)
            return tf.cast(tensor, self.devices.dtype) if tensor.dtype.is_floating else tf.identity(tensor)
