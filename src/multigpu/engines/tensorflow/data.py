"""JPEG files through tf.data: the same files, crops and flips as in PyTorch, decoded and scaled by TensorFlow's own operations."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.feed import Shard, join_shards, slices_joined_batch
from multigpu.engines.tensorflow.module import Tensors
from multigpu.inputs.encoded import EncodedImages
from multigpu.inputs.pictures import IMAGENET_DEVIATION, IMAGENET_MEAN
from multigpu.placements.traffic import HOST


def decoded(file: tf.Tensor, label: tf.Tensor, box: tf.Tensor, flipped: tf.Tensor, size: int, dtype: tf.DType) -> Tensors:
    """One image as the model takes it, (3, size, size), from its file and its crop (left, top, width, height)."""
    window = tf.stack([box[1], box[0], box[3], box[2]])  # TensorFlow's order: row, column, height, width
    pixels = tf.io.decode_and_crop_jpeg(tf.io.read_file(file), window, channels=3)
    pixels = tf.image.resize(pixels, (size, size), tf.image.ResizeMethod.BILINEAR, antialias=True)
    pixels = tf.cond(flipped, lambda: tf.reverse(pixels, [1]), lambda: pixels)
    scale, shift = (np.array(law, dtype=np.float32) for law in (IMAGENET_DEVIATION, IMAGENET_MEAN))
    pixels = tf.ensure_shape((pixels / 255 - shift) / scale, (size, size, 3))
    return {"images": tf.cast(tf.transpose(pixels, (2, 0, 1)), dtype), "labels": label}


class DataFeed:
    """Shards of all replicas, step after step, each replica's through a pipeline of its own.

    `run.input_workers` parallel calls decode, on as many threads (0: one call after another in the step); `run.prefetch` batches are
    made ahead, on the device where `run.staging` says so. Batches that are to be joined go to the first device.

    waits: step -> seconds that the host waited until it had every replica's batch.
    """

    def __init__(self, source: EncodedImages, devices: Devices) -> None:
        self.source, self.devices, self.run = source, devices, devices.run
        self.waits: dict[int, float] = {}
        self.join = slices_joined_batch(self.run)
        self.places = [0 if self.join else place for place, _ in enumerate(devices.ranks)]
        self.iterators = [self._pipeline(place, rank) for place, rank in zip(self.places, devices.ranks, strict=True)]
        self.next = 0

    def _rows(self, rank: int) -> Iterator[tuple[str, int, tuple[int, int, int, int], bool]]:
        for step in itertools.count():
            for example in self.source.examples(step, rank):
                yield str(example.file), example.label, *example.changes(*example.size())

    def _pipeline(self, place: int, rank: int) -> Iterator[Tensors]:
        workers, size, dtype = self.run.input_workers or 0, self.source.size, self.devices.dtype
        with self.devices.at(HOST):
            signature = (
                tf.TensorSpec((), tf.string),
                tf.TensorSpec((), tf.int64),
                tf.TensorSpec((4,), tf.int32),
                tf.TensorSpec((), tf.bool),
            )
            rows = tf.data.Dataset.from_generator(lambda: self._rows(rank), output_signature=signature)
            found = rows.map(
                lambda file, label, box, flipped: decoded(file, label, box, flipped, size, dtype),
                num_parallel_calls=max(1, workers),
                deterministic=True,
            ).batch(self.run.shard_sizes[rank], drop_remainder=True)
            options = tf.data.Options()
            options.autotune.enabled = False
            options.threading.private_threadpool_size = max(1, workers)
            found = found.with_options(options)
            if self.run.prefetch and self.run.staging:
                found = found.apply(tf.data.experimental.prefetch_to_device(self.devices.name(place), self.run.prefetch))
            elif self.run.prefetch:
                found = found.prefetch(self.run.prefetch)
            return iter(found)

    def shards(self, step: int) -> list[Shard]:
        """The shard of every replica in step `step`, which must be the next, by rank.

        Raises:
            ValueError: a file is no JPEG; the sentence says so.
        """
        if step != self.next:
            raise RuntimeError(f"tf.data gives batches in their order: step {self.next} comes next, not {step}")
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
            raise ValueError(f"an image of step {step} cannot be decoded: {' '.join(str(error.message).split())[:160]}") from None
        with self.devices.at(self.places[index]):
            tensors = {name: tf.identity(tensor) for name, tensor in found.items()}
        with self.devices.at(HOST):
            tensors["labels_host"] = tf.identity(found["labels"])
        return Shard(self.source.empty_batch(step, rank), tensors)

    def close(self) -> None:
        """End the pipelines: their threads go with their iterators."""
        self.iterators = []
