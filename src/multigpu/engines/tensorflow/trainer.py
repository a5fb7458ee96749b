"""All towers of a placement as one program, its parts in name scopes (`graphs.PARTS`)."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from multigpu.engines.common.context import RunContext
from multigpu.engines.common.timing import most_steps
from multigpu.engines.ready import most_ready_steps
from multigpu.engines.tensorflow import rules
from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.feed import Shard
from multigpu.engines.tensorflow.graphs import Graphs, collected, moved_bytes
from multigpu.engines.tensorflow.module import build_module, form_of
from multigpu.engines.tensorflow.variables import (
    from_stored,
    initial_values,
    make_variable,
    to_stored,
    zeros_variable,
)
from multigpu.spec.model import Variable
from multigpu.workloads.tensorflow_module import StepModule, Tensors

# a number for each program that this process traces, by which its graph is found again
TRACES = itertools.count()


@dataclass(frozen=True)
class Context(RunContext):
    """All that a trainer may know of its Run.
    even: all sentences of every batch have one length. dynamic: batches of different steps have
        different shapes.
    strategy: of tf.distribute, where it had to stand before anything else in this process.
    """

    devices: Devices
    even: bool
    dynamic: bool
    strategy: Any = None

    @property
    def replicas(self) -> int:
        """Of this process."""
        return self.devices.count

    @property
    def sparse(self) -> bool:
        return self.run.embedding_gradients == "sparse"


@dataclass
class Tower:
    """One replica's gradients. ids, rows: table -> ids (n,) and their gradients (n, width)."""

    gradients: Tensors = field(default_factory=dict)
    ids: Tensors = field(default_factory=dict)
    rows: Tensors = field(default_factory=dict)


class Trainer:
    """Base of in-graph placements. uncounted: why bytes were not counted, or "" if they were."""

    uncounted = ""

    def __init__(self, context: Context) -> None:
        self.context, self.devices = context, context.devices
        run = context.run
        self.module: StepModule = build_module(run, form_of(run, self.devices, context.even))
        self.steps_done = 0
        steps = most_steps(run) + most_ready_steps(run)
        # losses stay on their devices until the end: what a function returns passes through the
        # first device
        self.losses = [
            zeros_variable((steps,), self.devices.dtype, self.kept_at(rank), f"losses_{rank}")
            for rank in range(context.replicas)
        ]
        self.statistics = [
            {
                name: make_variable(
                    np.full(shape, start, np.float32),
                    self.devices.dtype,
                    self.kept_at(rank),
                    f"{name}_{rank}",
                )
                for name, (shape, start) in self.module.statistics.items()
            }
            for rank in range(context.replicas)
        ]
        self.program: tf.types.experimental.ConcreteFunction | None = None
        self.graphs: Graphs | None = None

    def kept_at(self, rank: int) -> str:
        """The device of what a replica keeps for itself: its losses and running statistics."""
        return self.devices.name(rank)

    def pull(self, rank: int) -> Tensors:
        """Dense values on replica `rank`'s device."""
        raise NotImplementedError

    def look_up(self, rank: int, batch: Tensors) -> tuple[Tensors, Tensors]:
        """Rows of every table and their ids on replica `rank`'s device, by variable."""
        raise NotImplementedError

    def finish(self, towers: list[Tower], batches: list[Tensors], hyper: tf.Tensor) -> None:
        """Merge all towers' gradients and update every variable."""
        raise NotImplementedError

    def masters(self) -> Iterator[tuple[int, Variable, tf.Variable]]:
        """(rank of the Record's part that holds it, variable, its master)."""
        raise NotImplementedError

    def _zeros(self, shape: tuple[int, ...], place: int, name: str) -> tf.Variable:
        return zeros_variable(shape, self.devices.dtype, self.devices.name(place), name)

    def _slots(self, shape: tuple[int, ...], place: int, name: str) -> list[tf.Variable]:
        """Create the optimizer's slots beside a variable that it updates at `place`."""
        return [
            self._zeros(shape, place, f"{name}_{slot}")
            for slot in rules.slot_names(self.context.rule)
        ]

    def move(self, tensor: tf.Tensor, place: int) -> tf.Tensor:
        with self.devices.at(place):
            return tf.identity(tensor)

    def terms(self, shards: list[Shard]) -> list[int]:
        """Return the divisor of each replica's summed loss."""
        return [shard.batch.global_loss_terms for shard in shards]

    def _program(self, batches: list[Tensors], hyper: tf.Tensor) -> None:
        self.finish(self._towers(batches, hyper), batches, hyper)

    def _towers(self, batches: list[Tensors], hyper: tf.Tensor) -> list[Tower]:
        return [self._tower(rank, batch, hyper) for rank, batch in enumerate(batches)]

    def _tower(self, rank: int, batch: Tensors, hyper: tf.Tensor) -> Tower:
        values = self.pull(rank)
        rows, ids = self.look_up(rank, batch)
        with self.devices.at(rank), tf.name_scope(f"compute/{rank}/"):
            numbers = tf.identity(hyper)
            statistics = {
                name: variable.read_value() for name, variable in self.statistics[rank].items()
            }
            passes = self._passes
            if self.context.run.execution == "xla":
                # compiled tower by tower: one compiled function over several devices would silently
                # run on one of them
                passes = tf.function(self._passes, jit_compile=True, autograph=False)
            loss, gradients, row_gradients, statistics = passes(
                values, batch, rows, statistics, numbers[rules.TERMS + rank]
            )
            with tf.name_scope("kept"):  # beside the passes: done whenever the executor finds time
                for name, value in statistics.items():
                    self.statistics[rank][name].assign(value)
                step = tf.cast(numbers[rules.STEP], tf.int64)
                tf.raw_ops.ResourceScatterUpdate(
                    resource=self.losses[rank].handle, indices=step, updates=loss
                )
            tower = Tower({name: sized(gradient) for name, gradient in gradients.items()})
            for name, gradient in row_gradients.items():
                width = gradient.shape[-1]
                tower.ids[name] = tf.reshape(ids[name], [-1])
                tower.rows[name] = tf.reshape(gradient, [-1, width])
                if self.context.sparse:
                    with tf.name_scope(f"compute/{rank}/{name}/"):
                        tower.ids[name], tower.rows[name] = deduplicated(
                            tower.ids[name], tower.rows[name]
                        )
        return tower

    def _passes(
        self, values: Tensors, batch: Tensors, rows: Tensors, statistics: Tensors, terms: tf.Tensor
    ) -> tuple[tf.Tensor, Tensors, Tensors, Tensors]:
        """The shard's loss over `terms`, gradients by variable and by row, new statistics."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*values.values(), *rows.values()])
            total, updated = self.module.loss(values, batch, rows, statistics)
            loss = total / terms
        with tf.name_scope("backward"):
            gradients, row_gradients = tape.gradient(loss, (values, rows))
            # a Keras table's is in rows
            gradients = {
                name: tf.convert_to_tensor(gradient) for name, gradient in gradients.items()
            }
        return loss, gradients, row_gradients, updated

    def _arguments(self, shards: list[Shard], step: int) -> tuple[list[Tensors], tf.Tensor]:
        numbers = rules.hyper(self.context.rule, step, self.terms(shards), self.devices.dtype)
        with self.devices.at(-1):
            return [shard.tensors for shard in shards], tf.constant(numbers)

    def _traced(self, shards: list[Shard], dynamic: bool) -> tf.types.experimental.ConcreteFunction:
        """The program for batches like these; `dynamic`: of any number of positions."""
        self.traces = next(TRACES)
        batches, hyper = self._arguments(shards, 0)
        specs = [
            {name: spec_of(f"{name}_{rank}", tensor, dynamic) for name, tensor in batch.items()}
            for rank, batch in enumerate(batches)
        ]
        function = tf.function(self._program, autograph=False)
        return function.get_concrete_function(
            specs, tf.TensorSpec(hyper.shape, hyper.dtype, f"hyper_{self.traces}")
        )

    def step(self, shards: list[Shard]) -> None:
        """Train on one shard a replica. It may return before the devices have finished."""
        batches, hyper = self._arguments(shards, self.steps_done)
        if self.context.run.execution == "eager":
            self._program(batches, hyper)
        else:
            if self.program is None:
                self.program = self._traced(shards, self.context.dynamic)
            self.program(batches, hyper)
        self.steps_done += 1

    def counted_step(self, shards: list[Shard]) -> dict[str, int]:
        """A step, and the bytes that its partitioned graph moves, by kind."""
        program = self._traced(shards, dynamic=False)
        batches, hyper = self._arguments(shards, self.steps_done)
        self.graphs = collected(program, lambda: program(batches, hyper), f"hyper_{self.traces}")
        self.steps_done += 1
        if self.context.run.execution != "eager" and not self.context.dynamic:
            self.program = program
        unknown = {
            f"{name}_{rank}": count
            for rank, rows in enumerate(self.distinct_rows(shards))
            for name, count in rows.items()
        }
        ids = {
            f"{array}_{rank}"
            for array in self.module.lookup_arrays.values()
            for rank in range(self.context.replicas)
        }
        try:
            return moved_bytes(self.graphs, self.devices, ids, unknown)
        # the step is what it is, whether or not all of it could be sized
        except LookupError as error:
            self.uncounted = str(error)
            return {}

    def distinct_rows(self, shards: list[Shard]) -> list[dict[str, int]]:
        """Of each replica, embedding variable -> how many different rows it looks up."""
        found = []
        for shard in shards:
            arrays = {
                name: shard.batch.arrays[array] for name, array in self.module.lookup_arrays.items()
            }
            found.append(
                {
                    name: len(np.unique(array))
                    for name, array in arrays.items()
                    if isinstance(array, np.ndarray)
                }
            )
        return found

    def loss_shares(self) -> list[list[float]]:
        """[rank][step]: each replica's share of the joined loss, of the steps done."""
        return [
            [float(loss) for loss in losses.numpy()[: self.steps_done]] for losses in self.losses
        ]

    def initial(self) -> Iterator[tuple[Variable, np.ndarray]]:
        """Each variable with its stored initial value."""
        for variable, value in initial_values(self.context.model, self.context.run.seed):
            yield variable, to_stored(self.module, variable, value)

    def owned(self, rank: int) -> dict[str, tf.Variable]:
        """The masters that the Record's part `rank` answers for, in TensorFlow's layout."""
        return {variable.name: master for part, variable, master in self.masters() if part == rank}

    def full_values(self, rank: int = 0) -> dict[str, np.ndarray]:
        """All variables in the description's layout (of replica `rank`, where each has its own)."""
        return {
            variable.name: from_stored(self.module, variable, m.numpy())
            for part, variable, m in self.masters()
            if part == rank
        }


def spec_of(name: str, tensor: tf.Tensor, dynamic: bool) -> tf.TensorSpec:
    """Of an argument like this one, its second axis left open where it is `dynamic`."""
    return tf.TensorSpec(
        [tensor.shape[0], None] if dynamic and tensor.shape.rank == 2 else tensor.shape,
        tensor.dtype,
        name,
    )


def sized(tensor: tf.Tensor) -> tf.Tensor:
    """A loop's result after one more operation, whose shape the partitioned graph knows."""
    if hasattr(tensor, "numpy"):
        return tensor
    source = tensor.op
    while source.type == "Identity":  # which the runtime removes
        source = source.inputs[0].op
    if source.type in ("While", "StatelessWhile"):
        return tf.ensure_shape(tensor, tensor.shape)
    return tensor


def deduplicated(ids: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Distinct ids, and for each the sum of its rows."""
    distinct, places = tf.unique(ids, tf.int64)
    return distinct, tf.math.unsorted_segment_sum(rows, places, tf.size(distinct, tf.int64))
