"""Placements with one master a variable, on the host or a device, updated there or elsewhere."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from multigpu.engines.common.context import Carries
from multigpu.engines.tensorflow import rules
from multigpu.engines.tensorflow.trainer import Context, Tower, Trainer, deduplicated
from multigpu.engines.tensorflow.variables import make_variable
from multigpu.placements.resolve import shard_sizes
from multigpu.placements.traffic import HOST, REPLICA, Assigned
from multigpu.spec.model import Variable
from multigpu.workloads.tensorflow_module import Tensors


class ServerTrainer(Trainer):
    """Towers read masters, which collect gradients; an update elsewhere works on a mirror."""

    carries = Carries({"host": (False,), "gpu0": (False,), "balanced": (False,)}, tables=True)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.assigned = {a.variable.name: a for a in context.assigned}
        self.tables = [a for a in context.assigned if a.variable.kind == "embedding"]
        self.held: dict[str, tf.Variable] = {}
        self.mirrors: dict[str, tf.Variable] = {}
        self.slots: dict[str, list[tf.Variable]] = {}
        for variable, value in self.initial():
            a, name = self.assigned[variable.name], variable.name
            self.held[name] = make_variable(
                value, self.devices.dtype, self.devices.name(a.home), name
            )
            if a.update != a.home:
                self.mirrors[name] = self._zeros(value.shape, a.update, f"{name}_mirror")
            self.slots[name] = self._slots(value.shape, a.update, name)
        self.read: Tensors = {}
        self.numbers: dict[int, tf.Tensor] = {}

    def _program(self, batches: list[Tensors], hyper: tf.Tensor) -> None:
        self.read, self.numbers = {}, {}  # of this trace or this eager step
        super()._program(batches, hyper)
        self.read, self.numbers = {}, {}

    def _value(self, a: Assigned) -> tf.Tensor:
        """The master's value at its home, read once a step."""
        name = a.variable.name
        if name not in self.read:
            with self.devices.at(a.home), tf.name_scope(f"read/{name}/"):
                self.read[name] = self.held[name].read_value()
        return self.read[name]

    def pull(self, rank: int) -> Tensors:
        return {
            name: self.move(self._value(a), rank)
            for name, a in self.assigned.items()
            if a.variable.kind != "embedding"
        }

    def look_up(self, rank: int, batch: Tensors) -> tuple[Tensors, Tensors]:
        rows, ids = {}, {}
        for a in self.tables:
            name, array = a.variable.name, self.module.lookup_arrays[a.variable.name]
            ids[name] = batch[array]
            place = rank if a.lookup == REPLICA else a.lookup
            with self.devices.at(place), tf.name_scope(f"lookup/{name}/"):
                asked = batch[f"{array}_host"] if place == HOST else tf.identity(ids[name])
                table = tf.identity(self._value(a)) if a.lookup == REPLICA else self.held[name]
                found = tf.gather(table, asked)  # (B, T, width)
            rows[name] = self.move(found, rank)
        return rows, ids

    def finish(self, towers: list[Tower], batches: list[Tensors], hyper: tf.Tensor) -> None:
        for name, a in self.assigned.items():
            if a.update not in self.numbers:
                self.numbers[a.update] = self.move(hyper, a.update)
            with self.devices.at(a.update):
                if name not in towers[0].rows:
                    with tf.name_scope(f"merge/{name}/"):
                        gradient = tf.add_n(
                            [tf.identity(tower.gradients[name]) for tower in towers]
                        )
                    self._update(a, gradient)
                    continue
                with tf.name_scope(f"merge/{name}/"):
                    rows = tf.concat([tf.identity(tower.rows[name]) for tower in towers], 0)
                    # ids are there from the start, and their place in a trace says nothing
                    with tf.name_scope("kept"):
                        ids = tf.concat(
                            [
                                self._ids_at(a, tower, batch)
                                for tower, batch in zip(towers, batches, strict=True)
                            ],
                            0,
                        )
                    if self.context.sparse:
                        ids, rows = deduplicated(ids, rows)
                    else:
                        rows = tf.math.unsorted_segment_sum(rows, ids, a.variable.shape[0])
                self._update(a, rows, ids if self.context.sparse else None)

    def _ids_at(self, a: Assigned, tower: Tower, batch: Tensors) -> tf.Tensor:
        """A replica's ids where the table is updated; the host has those of the batch."""
        if a.update == HOST and not self.context.sparse:
            return tf.reshape(batch[f"{self.module.lookup_arrays[a.variable.name]}_host"], [-1])
        if self.context.sparse:
            return tf.identity(tower.ids[a.variable.name])
        return tf.reshape(tf.identity(batch[self.module.lookup_arrays[a.variable.name]]), [-1])

    def _update(self, a: Assigned, gradient: tf.Tensor, ids: tf.Tensor | None = None) -> None:
        name, rule, numbers = a.variable.name, self.context.rule, self.numbers[a.update]
        slots, target = self.slots[name], self.mirrors.get(name, self.held[name])
        with tf.name_scope(f"update/{name}/"):
            if name in self.mirrors:
                target.assign(tf.identity(self._value(a)))
            if ids is None:
                rules.apply(rule, target, slots, gradient, numbers)
            else:
                rules.apply_rows(rule, target, slots, ids, gradient, numbers)
            if name in self.mirrors:
                fresh = target.read_value()
                with self.devices.at(a.home):
                    self.held[name].assign(tf.identity(fresh))

    def masters(self) -> Iterator[tuple[int, Variable, tf.Variable]]:
        for name, a in self.assigned.items():
            yield 0, a.variable, self.held[name]


class ParallelTrainer(ServerTrainer):
    """make_parallel in one graph (see PyTorch's twin), of joined shards. Modules say
    `logits(values, images, statistics)`, (B, classes) and statistics, and `loss_of(logits,
    labels)`, the sum.
    """

    carries = Carries({"host": (False,), "gpu0": (False,)}, losses=("gpu0",))

    module: Any

    def _towers(self, batches: list[Tensors], hyper: tf.Tensor) -> list[Tower]:
        joined, sizes = batches[0], shard_sizes(self.context.run)
        with self.devices.at(0), tf.name_scope("read/images/"):
            images = tf.split(joined["images"], sizes)
        passes = [self._predict(rank, own) for rank, own in enumerate(images)]
        with self.devices.at(0), tf.name_scope("merge/predictions/"):
            predictions = tf.concat([tf.identity(own) for _, own, _ in passes], 0)
        with self.devices.at(0), tf.name_scope("compute/0/"):
            numbers = tf.identity(hyper)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(predictions)
                loss = self.module.loss_of(predictions, joined["labels"]) / numbers[rules.TERMS]
            with tf.name_scope("backward"):
                gradient = tape.gradient(loss, predictions)
            with tf.name_scope("kept"):
                step = tf.cast(numbers[rules.STEP], tf.int64)
                tf.raw_ops.ResourceScatterUpdate(
                    resource=self.losses[0].handle, indices=step, updates=loss
                )
        with self.devices.at(0), tf.name_scope("merge/predictions/"):
            slices = tf.split(gradient, sizes)
        towers = []
        for rank, ((tape, own, values), back) in enumerate(zip(passes, slices, strict=True)):
            # said here once more: a tape puts what it makes on the device in scope, not where the
            # tower was
            with self.devices.at(rank), tf.name_scope(f"compute/{rank}/backward/"):
                towers.append(Tower(tape.gradient(own, values, output_gradients=tf.identity(back))))
        return towers

    def _predict(self, rank: int, images: tf.Tensor) -> tuple[tf.GradientTape, tf.Tensor, Tensors]:
        """A tower's forward pass: its tape, predictions (b, classes) and watched values."""
        values = self.pull(rank)
        with self.devices.at(rank), tf.name_scope(f"compute/{rank}/"):
            statistics = {
                name: variable.read_value() for name, variable in self.statistics[rank].items()
            }
            own = tf.identity(images)
            logits = self.module.logits
            if self.context.run.execution == "xla":
                logits = tf.function(logits, jit_compile=True, autograph=False)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(list(values.values()))
                predictions, updated = logits(values, own, statistics)
            with tf.name_scope("kept"):
                for name, value in updated.items():
                    self.statistics[rank][name].assign(value)
        return tape, predictions, values
