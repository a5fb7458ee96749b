"""Ways of feeding reviews that a Run can ask for: by the step's own thread, or one step ahead by another one."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.feed import Feed, Shard, slices_joined_batch
from multigpu.engines.tensorflow.module import Tensors
from multigpu.inputs.batch import Batch, Source
from multigpu.inputs.feeding import Feeding, plain_arrays
from multigpu.placements.traffic import HOST
from multigpu.stages.check import graph_of, places_of
from multigpu.workloads import workloads


def make_feed(source: Source, devices: Devices) -> Feed:
    """The feed that the devices' Run asks for."""
    run = devices.run
    return RowFeed(source, devices, run.feed) if run.feed else Feed(source, devices, slices_joined_batch(run))


class RowFeed(Feeding[list[Shard]], Feed):
    """Reviews of all replicas; what is copied when the step asks is copied as a feed_dict does."""

    def __init__(self, source: Source, devices: Devices, mode: str | None) -> None:
        # nothing of the other ways of feeding is made
        Feeding.__init__(self, source, mode)
        self.devices = devices

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.devices.ranks

    def shards(self, step: int) -> list[Shard]:
        return self.given(step)

    def put_all(self, batches: list[Batch]) -> list[Shard]:
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
