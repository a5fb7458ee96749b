"""From a framework-free Source to tensors on every replica's device; JPEG files through tf.data."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from multigpu.engines.tensorflow.devices import Devices
from multigpu.inputs.batch import Batch, Draw, Feeding, Source, plain_arrays
from multigpu.inputs.encoded import EncodedImages
from multigpu.inputs.pictures import IMAGENET_DEVIATION, IMAGENET_MEAN
from multigpu.placements import find_placement
from multigpu.placements.resolve import shard_sizes
from multigpu.placements.traffic import HOST
from multigpu.spec.run import Run
from multigpu.workloads.tensorflow_module import Tensors


@dataclass(frozen=True)
class Shard:
    """One replica's part of a step. Ids and int32 lengths are on the host too, as `NAME_host`."""

    batch: Batch
    tensors: Tensors


def is_even(source: Source, replicas: int) -> bool:
    """Whether every sentence of every batch has the same length, and no target is padded."""
    if source.period != 1:
        return False
    for arrays in (plain_arrays(source.batch(0, rank)) for rank in range(replicas)):
        for lengths, of in (("source_length", "source"), ("target_length", "target_output")):
            if lengths in arrays and (arrays[lengths] != arrays[of].shape[1]).any():
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


def slices_global_batch(run: Run) -> bool:
    """Whether the first device holds each global batch and slices it over the replicas."""
    return find_placement(run.placement).loss == "gpu0"


def join_shards(shards: list[Shard], devices: Devices) -> list[Shard]:
    """The same shards, the tensors of all as one global batch with the first of them."""
    joined: Tensors = {}
    for name in shards[0].tensors:
        with devices.at(HOST if name.endswith("_host") else 0):
            joined[name] = tf.concat([shard.tensors[name] for shard in shards], 0)
    return [Shard(shard.batch, {} if index else joined) for index, shard in enumerate(shards)]


class Feed(Feeding[list[Shard]]):
    """Shards of all replicas, copied in every step. join: on the first device, as one batch."""

    def __init__(
        self, source: Source, devices: Devices, mode: str | None = None, join: bool = False
    ) -> None:
        super().__init__(source, mode)
        self.devices, self.join, self.ranks = devices, join, devices.ranks

    def shards(self, step: int) -> list[Shard]:
        return self.given(step)

    def put_all(self, batches: list[Batch]) -> list[Shard]:
        shards = [
            Shard(batch, self.put(batch, 0 if self.join else place))
            for place, batch in enumerate(batches)
        ]
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
                    tensors[f"{name}_host"] = tf.constant(
                        array, tf.int32 if name.endswith("_length") else tf.int64
                    )
        return tensors

    def copied(self, array: np.ndarray, place: int) -> tf.Tensor:
        """A new copy of `array` at `place`, in the Run's type where it is floating-point."""
        with self.devices.at(place):
            tensor = tf.constant(array)
            if tensor.dtype.is_floating:
                return tf.cast(tensor, self.devices.dtype)
            return tf.identity(tensor)


def decoded(
    file: tf.Tensor,
    label: tf.Tensor,
    box: tf.Tensor,
    flipped: tf.Tensor,
    size: int,
    dtype: tf.DType,
) -> Tensors:
    """One image (3, size, size) from its file and its crop (left, top, width, height)."""
    # TensorFlow's order: row, column, height, width
    window = tf.stack([box[1], box[0], box[3], box[2]])
    pixels = tf.io.decode_and_crop_jpeg(tf.io.read_file(file), window, channels=3)
    pixels = tf.image.resize(pixels, (size, size), tf.image.ResizeMethod.BILINEAR, antialias=True)
    pixels = tf.cond(flipped, lambda: tf.reverse(pixels, [1]), lambda: pixels)
    scale, shift = (np.array(law, dtype=np.float32) for law in (IMAGENET_DEVIATION, IMAGENET_MEAN))
    pixels = tf.ensure_shape((pixels / 255 - shift) / scale, (size, size, 3))
    return {"images": tf.cast(tf.transpose(pixels, (2, 0, 1)), dtype), "labels": label}


class DataFeed:
    """Shards of all replicas, each through a tf.data pipeline of its own. `run.input_workers`
    threads decode (0: in the step).
    waits: step -> seconds that the host waited until it had every replica's batch.
    """

    def __init__(self, source: EncodedImages, devices: Devices) -> None:
        self.source, self.devices, self.run = source, devices, devices.run
        self.waits: dict[int, float] = {}
        self.join = slices_global_batch(self.run)
        self.places = [0 if self.join else place for place, _ in enumerate(devices.ranks)]
        self.iterators = [
            self._pipeline(place, rank)
            for place, rank in zip(self.places, devices.ranks, strict=True)
        ]
        self.next = 0

    def _rows(self, rank: int) -> Iterator[tuple[str, int, tuple[int, int, int, int], bool]]:
        for step in itertools.count():
            for example in self.source.examples(step, rank):
                yield str(example.file), example.label, *example.changes(*example.size())

    def _pipeline(self, place: int, rank: int) -> Iterator[Tensors]:
        workers, size, dtype = self.run.input_workers or 0, self.source.size, self.devices.dtype
        with self.devices.at(HOST):
            kinds = ((), tf.string), ((), tf.int64), ((4,), tf.int32), ((), tf.bool)
            signature = tuple(tf.TensorSpec(shape, kind) for shape, kind in kinds)
            rows = tf.data.Dataset.from_generator(
                lambda: self._rows(rank), output_signature=signature
            )
            found = rows.map(
                lambda file, label, box, flipped: decoded(file, label, box, flipped, size, dtype),
                num_parallel_calls=max(1, workers),
                deterministic=True,
            ).batch(shard_sizes(self.run)[rank], drop_remainder=True)
            options = tf.data.Options()
            options.autotune.enabled = False
            options.threading.private_threadpool_size = max(1, workers)
            found = found.with_options(options)
            if self.run.prefetch and self.run.staging:
                found = found.apply(
                    tf.data.experimental.prefetch_to_device(
                        self.devices.name(place), self.run.prefetch
                    )
                )
            elif self.run.prefetch:
                found = found.prefetch(self.run.prefetch)
            return iter(found)

    def shards(self, step: int) -> list[Shard]:
        """Each replica's shard of `step`, which must be the next; ValueError: a file is no JPEG."""
        if step != self.next:
            raise RuntimeError(
                f"tf.data gives batches in their order: step {self.next} comes next, not {step}"
            )
        self.next += 1
        began = time.perf_counter()
        shards = [self._shard(step, index, rank) for index, rank in enumerate(self.devices.ranks)]
        if self.join:
            shards = join_shards(shards, self.devices)
        self.waits[step] = time.perf_counter() - began
        return shards

    def _shard(self, step: int, index: int, rank: int) -> Shard:
        try:
            found = next(self.iterators[index])
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(
                f"an image of step {step} cannot be decoded:"
                f" {' '.join(str(error.message).split())[:160]}"
            ) from None
        with self.devices.at(self.places[index]):
            tensors = {name: tf.identity(tensor) for name, tensor in found.items()}
        with self.devices.at(HOST):
            tensors["labels_host"] = tf.identity(found["labels"])
        return Shard(self.source.empty_batch(step, rank), tensors)

    def close(self) -> None:
        """Threads go with their iterators."""
        self.iterators = []
