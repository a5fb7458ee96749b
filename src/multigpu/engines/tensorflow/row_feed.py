"""Ways of feeding reviews that a Run can ask for: by the step's own thread, or one step ahead by another one."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.feed import Feed, Shard, slices_joined_batch
from multigpu.engines.tensorflow.module import Tensors
from multigpu.inputs.batch import Batch, Source
from multigpu.placements.traffic import HOST
from multigpu.stages.check import graph_of, places_of
from multigpu.workloads import workloads


def make_feed(source: Source, devices: Devices) -> Feed:
    """The feed that the devices' Run asks for."""
    run = devices.run
    return RowFeed(source, devices, run.feed) if run.feed else Feed(source, devices, slices_joined_batch(run))


def plain_arrays(batch: Batch) -> dict[str, np.ndarray]:
    """A batch's arrays, which must be numbers of the host: reviews are never drawn on a device."""
    return {name: array for name, array in batch.arrays.items() if isinstance(array, np.ndarray)}


class RowFeed(Feed):
    """A copy to the devices in every step. Batches that repeat stay on the host as numpy arrays, or on the devices with `mode` None.

    mode: "arrays", "strings": made and copied when the step asks, as a feed_dict does. "pipeline": one step ahead, by another thread
        (also what None does with batches that do not repeat).
    """

    def __init__(self, source: Source, devices: Devices, mode: str | None) -> None:
        # nothing of the other ways of feeding is made
        self.source, self.devices, self.mode = source, devices, mode
        self.keep = mode is None and bool(source.period)
        ahead = not self.keep and mode not in ("arrays", "strings")
        self.waits: dict[int, float] = {}
        self.placed: dict[int, list[Shard]] = {}
        self.ready: dict[int, list[Batch]] = {}
        self.thread = ThreadPoolExecutor(max_workers=1) if ahead else None
        self.next: tuple[int, Future[list[Shard]]] | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """Of the shards of one step."""
        return self.devices.ranks

    def shards(self, step: int) -> list[Shard]:
        """The shards of step `step`, by rank."""
        if self.keep:
            index = step % (self.source.period or 1)
            if index not in self.placed:
                self.placed[index] = self._made(step)
            return self.placed[index]
        began = time.perf_counter()
        if self.thread is None:
            shards = self._made(step)
        else:
            shards = self.next[1].result() if self.next and self.next[0] == step else self._made(step)
            self.next = (step + 1, self.thread.submit(self._made, step + 1))
        self.waits[step] = time.perf_counter() - began
        return shards

    def _made(self, step: int) -> list[Shard]:
        if self.source.period:
            index = step % self.source.period
            if index not in self.ready:
                self.ready[index] = [self.source.batch(index, rank) for rank in self.ranks]
            batches = self.ready[index]
        else:
            batches = [self.source.batch(step, rank) for rank in self.ranks]
        return [Shard(batch, self.put(batch, place)) for place, batch in enumerate(batches)]

    def put(self, batch: Batch, place: int) -> Tensors:
        """The batch's arrays on the device of replica `place`, ids on the host too."""
        tensors: Tensors = {}
        for name, array in plain_arrays(batch).items():
            tensors[name] = self.copied(array, place)
            if array.dtype.kind == "i":
                tensors[f"{name}_host"] = self.copied(array, HOST)
        return tensors

    def copied(self, array: np.ndarray, place: int) -> tf.Tensor:
        """A new copy of `array` at `place`, in the Run's type where it is floating-point."""
        with self.devices.at(place):
            tensor = tf.constant(array)
            return tf.cast(tensor, self.devices.dtype) if tensor.dtype.is_floating else tf.identity(tensor)

    def close(self) -> None:
        """Stop fetching ahead."""
        if self.thread:
            self.thread.shutdown(cancel_futures=True)


class StageFeed(RowFeed):
    """One shard a step, its arrays on the devices of the stages that read them; words as strings where the Run asks for it."""

    def __init__(self, source: Source, devices: Devices) -> None:
        run = devices.run
        super().__init__(source, devices, run.feed)
        staged = workloads()[run.workload].stages
        assert staged
        self.arrays, graph, places = staged.arrays, graph_of(run), places_of(run)
        self.readers = {array: places[stage.name] for stage in graph.stages for array in stage.arrays}
        self.words = {array for stage in graph.stages if stage.host for array in stage.arrays}
        self.texts: dict[int, dict[str, np.ndarray]] = {}

    @property
    def ranks(self) -> tuple[int, ...]:
        return (0,)

    def put(self, batch: Batch, place: int) -> Tensors:
        tensors: Tensors = {}
        for name, array in self.arrays(self.devices.run.description, plain_arrays(batch)).items():
            if name in self.words:
                with self.devices.at(HOST):
                    tensors[name] = tf.constant(self._strings(name, array, batch))
            else:
                tensors[name] = self.copied(array, self.readers[name])
        return tensors

    def _strings(self, name: str, ids: np.ndarray, batch: Batch) -> np.ndarray:
        """The words as Python's strings, as a reader of reviews has them; made once of a batch that repeats."""
        known = self.texts.setdefault(id(batch), {}) if self.source.period else {}
        if name not in known:
            known[name] = word_strings(ids)
        return known[name]


def word_strings(ids: np.ndarray) -> np.ndarray:
    """Stand-ins for the words behind these ids: "w17". An array of Python's bytes."""
    return np.char.add("w", ids.astype(str)).astype(bytes).astype(object)
