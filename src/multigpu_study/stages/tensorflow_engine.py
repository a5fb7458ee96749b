"""One model split into stages over one process's devices, each with a tape: TensorFlow's placer
puts one whole backward on device 0.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from multigpu.engines.tensorflow import rules, session
from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.feed import Feed, Shard
from multigpu.engines.tensorflow.graphs import Graphs
from multigpu.engines.tensorflow.trainer import Context, Trainer, deduplicated
from multigpu.engines.tensorflow.variables import make_variable
from multigpu.inputs.batch import Batch, Source, plain_arrays
from multigpu.placements.traffic import HOST
from multigpu.spec.errors import Unsupported
from multigpu.spec.model import Variable
from multigpu.spec.stage_graph import Stage
from multigpu.workloads import description_of
from multigpu.workloads.stages import graph_of, places_of
from multigpu.workloads.tensorflow_module import Tensors
from multigpu_study.stages.parts import functions_of, stage_arrays

HOST_OPS = {"LookupTableFindV2": "a table of strings has no GPU kernel"}
"""Operations of stages that may run on the host, and why; any other without a kernel fails."""

# how the names of operations begin that compute nothing
NO_WORK = ("_", "Const", "Identity", "NoOp", "VarHandleOp", "ReadVariableOp")


def stray_ops(graphs: Graphs, devices: Devices) -> list[str]:
    """List operations of stages that ran on the host although they are not among `HOST_OPS`."""
    return sorted(
        f"{node.op} {node.name}"
        for node in graphs.nodes
        if node.name.split("/")[0] in ("compute", "gradient_tape", "update")
        and devices.place(node.device) == HOST
        and node.op not in HOST_OPS
        and not node.op.startswith(NO_WORK)
    )


class StageFeed(Feed):
    """A shard a step, its arrays on the devices that read them; words as strings if asked for."""

    def __init__(self, source: Source, devices: Devices) -> None:
        run = devices.run
        super().__init__(source, devices, run.feed)
        self.ranks = (0,)
        self.arrays, self.readers = stage_arrays(run)
        self.words = {
            array for stage in graph_of(run).stages if stage.host for array in stage.arrays
        }
        self.texts: dict[int, dict[str, np.ndarray]] = {}

    def put(self, batch: Batch, place: int) -> Tensors:
        tensors: Tensors = {}
        for name, array in self.arrays(
            description_of(self.devices.run), plain_arrays(batch)
        ).items():
            if name in self.words:
                with self.devices.at(HOST):
                    tensors[name] = tf.constant(self._strings(name, array, batch))
            else:
                tensors[name] = self.copied(array, self.readers[name])
        return tensors

    def _strings(self, name: str, ids: np.ndarray, batch: Batch) -> np.ndarray:
        """The words as Python's strings; made once of a batch that repeats."""
        known = self.texts.setdefault(id(batch), {}) if self.source.period else {}
        if name not in known:
            known[name] = word_strings(ids)
        return known[name]


def word_strings(ids: np.ndarray) -> np.ndarray:
    """Stand-ins for the words behind these ids: "w17". An array of Python's bytes."""
    return np.char.add("w", ids.astype(str)).astype(bytes).astype(object)


class StagesTrainer(Trainer):
    """The model's stages, each on its device; variables, slots and updates live with them."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        run = context.run
        self.graph, self.places, self.functions = graph_of(run), places_of(run), functions_of(run)
        self.homes = {name: self.places[stage] for name, stage in self.graph.variables.items()}
        self.tables = {
            variable.name for variable in context.model.variables if variable.kind == "embedding"
        }
        self.values: dict[str, tf.Variable] = {}
        self.slots: dict[str, list[tf.Variable]] = {}
        for variable, value in self.initial():
            name, home = variable.name, self.homes[variable.name]
            self.values[name] = make_variable(
                value, self.devices.dtype, self.devices.name(home), name
            )
            self.slots[name] = self._slots(value.shape, home, name)
        self.words = self._word_table() if any(stage.host for stage in self.graph.stages) else None

    def _word_table(self) -> tf.lookup.StaticHashTable:
        with self.devices.at(HOST):
            ids = np.arange(self.context.model.config.vocabulary, dtype=np.int64)
            pairs = tf.lookup.KeyValueTensorInitializer(word_strings(ids), ids, tf.string, tf.int64)
            return tf.lookup.StaticHashTable(pairs, 0)

    def _program(self, batches: list[Tensors], hyper: tf.Tensor) -> None:
        (batch,) = batches
        outputs: Tensors = {}
        tapes: dict[str, tuple[tf.GradientTape, Tensors, list[tf.Tensor]]] = {}
        for stage in self.graph.stages:
            outputs[stage.name], tapes[stage.name] = self._forward(
                stage, [outputs[name] for name in stage.inputs], batch
            )
        gradients = self._backward(outputs, tapes, hyper)
        for device in sorted(set(self.homes.values())):
            with self.devices.at(device):
                numbers = tf.identity(hyper)
                for name, home in self.homes.items():
                    if home == device:
                        self.apply(
                            name, self.values[name], self.slots[name], gradients[name], numbers
                        )

    def _forward(self, stage: Stage, inputs: list[tf.Tensor], batch: Tensors) -> Any:
        place = self.places[stage.name]
        with self.devices.at(place), tf.name_scope(f"compute/{place}/{stage.name}/"):
            arrays = [batch[name] for name in stage.arrays]
            if stage.host:
                assert self.words is not None
                return self.words.lookup(arrays[0]), (None, {}, [])
            here = [tf.identity(one) for one in inputs]
            values: Tensors = {}
            # rows are gathered from a table itself, without a copy of it
            for name in stage.variables:
                values[name] = (
                    self.values[name] if name in self.tables else self.values[name].read_value()
                )
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([*values.values(), *(one for one in here if one.dtype.is_floating)])
                output = self.functions[stage.name](values, here, arrays)
            return output, (tape, values, here)

    def _backward(
        self, outputs: Tensors, tapes: dict[str, Any], hyper: tf.Tensor
    ) -> dict[str, list[Any]]:
        """Variable -> its gradients, one of each stage that uses it. Keeps the step's loss."""
        last = self.graph.stages[-1].name
        home = self.places[last]
        with self.devices.at(home), tf.name_scope(f"compute/{home}/{last}/"):
            numbers = tf.identity(hyper)
            arriving: dict[str, list[tf.Tensor]] = {last: [1 / numbers[rules.TERMS]]}
            with tf.name_scope("kept"):
                step = tf.cast(numbers[rules.STEP], tf.int64)
                loss = outputs[last] / numbers[rules.TERMS]
                tf.raw_ops.ResourceScatterUpdate(
                    resource=self.losses[home].handle, indices=step, updates=loss
                )
        gradients: dict[str, list[Any]] = {name: [] for name in self.homes}
        for stage in reversed(self.graph.stages):
            tape, values, here = tapes[stage.name]
            if tape is None:
                continue
            place = self.places[stage.name]
            with self.devices.at(place), tf.name_scope(f"compute/{place}/{stage.name}/backward/"):
                given = [tf.identity(one) for one in arriving[stage.name]]
                whole = given[0] if len(given) == 1 else tf.add_n(given)
                flowing = [
                    (name, one)
                    for name, one in zip(stage.inputs, here, strict=True)
                    if one.dtype.is_floating
                ]
                found, back = tape.gradient(
                    outputs[stage.name],
                    (values, [one for _, one in flowing]),
                    output_gradients=whole,
                )
            for name, gradient in found.items():
                gradients[name].append(gradient)
            for (name, _), gradient in zip(flowing, back, strict=True):
                arriving.setdefault(name, []).append(gradient)
        return gradients

    def apply(
        self,
        name: str,
        variable: tf.Variable,
        slots: list[tf.Variable],
        gradients: list[Any],
        numbers: tf.Tensor,
    ) -> None:
        """Merge the gradients of a variable, which of a table are rows, and update it."""
        rule = self.context.rule
        if not isinstance(gradients[0], tf.IndexedSlices):
            with tf.name_scope(f"update/{name}/"):
                whole = gradients[0] if len(gradients) == 1 else tf.add_n(gradients)
                rules.apply(rule, variable, slots, whole, numbers)
            return
        with tf.name_scope(f"merge/{name}/"):
            ids = tf.concat([gradient.indices for gradient in gradients], 0)
            rows = tf.concat([gradient.values for gradient in gradients], 0)
            if self.context.sparse:
                ids, rows = deduplicated(tf.cast(ids, tf.int64), rows)
            else:
                dense = tf.math.unsorted_segment_sum(rows, ids, variable.shape[0])
        with tf.name_scope(f"update/{name}/"):
            if self.context.sparse:
                rules.apply_rows(rule, variable, slots, ids, rows, numbers)
            else:
                rules.apply(rule, variable, slots, dense, numbers)

    def counted_step(self, shards: list[Shard]) -> dict[str, int]:
        """As of other placements; `Unsupported`: an operation ran on the host that may not."""
        moved = super().counted_step(shards)
        assert self.graphs
        if strays := stray_ops(self.graphs, self.devices):
            raise Unsupported(
                f"{len(strays)} operations of stages ran on the host, {strays[0]} among them: only"
                f" {', '.join(HOST_OPS)} may"
            )
        return moved

    def masters(self) -> Iterator[tuple[int, Variable, tf.Variable]]:
        for variable in self.context.model.variables:
            yield self.homes[variable.name], variable, self.values[variable.name]

    def full_values(self, rank: int = 0) -> dict[str, np.ndarray]:
        return {
            name: value
            for place in range(self.context.replicas)
            for name, value in super(StagesTrainer, self).full_values(place).items()
        }


class Session(session.Session):
    """As for other placements of one process."""

    one_shard = True

    def _feed(self) -> Feed:
        return StageFeed(self.source, self.devices)

    def _trainer(self) -> Trainer:
        return StagesTrainer(self.context)
