"""Placements carried out by TensorFlow's own strategies, in one tf.function."""

import itertools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from multigpu.engines.common.context import Carries
from multigpu.engines.tensorflow import rules
from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.trainer import Context, Tower, Trainer
from multigpu.placements.row import Placement
from multigpu.placements.traffic import HOST
from multigpu.spec.errors import Unsupported
from multigpu.spec.model import Variable
from multigpu.workloads.tensorflow_module import Tensors

KEYS = itertools.count(1)
"""Of groups of collectives, so that no instance meets the shape of another Run's."""


class Mirrored(tf.distribute.MirroredStrategy):
    """The library's, with keys of its own: all would otherwise begin to count at one."""

    def __init__(self, devices: list[str], cross_device_ops: Any) -> None:
        self._collective_key_base = 1000 * next(KEYS)
        super().__init__(devices, cross_device_ops)


def strategy_of(placement: Placement, devices: Devices) -> Any:
    """The strategy of a placement that one process carries out; `Unsupported`: hierarchical copy on
    an odd number of devices. Its source (TensorFlow 2.21,
    `cross_device_utils.aggregate_gradients_using_hierarchical_copy`) makes two groups of devices //
    2 and would leave out the last one's gradients without a word. On 2 devices it is the reduction
    to the first; on 4 and 8, halves and then the first of all.
    """
    names = [devices.name(place) for place in range(devices.count)]
    if placement.variables == "host":
        return tf.distribute.experimental.CentralStorageStrategy(
            compute_devices=names, parameter_device=devices.name(HOST)
        )
    if placement.reduction == "halves":
        if devices.count % 2 and devices.count > 1:
            raise Unsupported(
                "HierarchicalCopyAllReduce halves the devices and leaves out the last of"
                f" {devices.count}: choose an even number of devices"
            )
        return Mirrored(names, tf.distribute.HierarchicalCopyAllReduce())
    if placement.reduction == "gpu0":
        return Mirrored(names, tf.distribute.ReductionToOneDevice())
    # NCCL exists on GPUs only; None is the strategy's own choice, on CPUs the ring collective
    return Mirrored(names, tf.distribute.NcclAllReduce() if devices.cuda else None)


def plain(variable: Any) -> tf.Variable:
    """The variable itself where a strategy wraps it."""
    return variable.get() if hasattr(variable, "get") else variable


class StrategyTrainer(Trainer):
    """One tower a replica, reduced by `merge_call`. locking: updates that come at once wait."""

    carries = Carries(
        {"all_reduce": (False,), "halves": (False,), "gpu0": (False,), "host": (False,)}
    )

    locking = False

    def __init__(self, context: Context) -> None:
        if context.sparse:
            raise Unsupported(
                "embedding_gradients 'sparse' under tf.distribute: choose 'dense', or a placement"
                " of this engine's towers"
            )
        self.strategy = context.strategy or strategy_of(context.placement, context.devices)
        super().__init__(context)
        self.first = context.devices.ranks[0]
        self.on_host = context.placement.variables == "host"
        self.order = context.model.variables
        self.tables = [v.name for v in self.order if v.kind == "embedding"]
        self.held: dict[str, Any] = {}
        self.slots: dict[str, list[Any]] = {}
        for variable, value in self.initial():
            with self.devices.at(HOST):
                start = tf.cast(tf.constant(value), self.devices.dtype)
                zeros = tf.zeros(value.shape, self.devices.dtype)
            with self.strategy.scope():
                held = tf.Variable(start, trainable=False, name=variable.name)
                with self.strategy.extended.colocate_vars_with(held):
                    self.slots[variable.name] = [
                        tf.Variable(zeros, trainable=False, name=f"{variable.name}_{slot}")
                        for slot in rules.slot_names(context.rule)
                    ]
            self.held[variable.name] = held
        self.numbers: dict[str, tf.Tensor] = {}

    def _program(self, batches: list[Tensors], hyper: tf.Tensor) -> None:
        self.numbers = {}

        def replica() -> None:
            context = tf.distribute.get_replica_context()
            place = int(tf.get_static_value(context.replica_id_in_sync_group)) - self.first
            tower = self._tower(place, batches[place], hyper)
            gradients = self._gradients(place, tower, batches[place])
            context.merge_call(
                lambda strategy, merged: self._reduce(strategy, merged, hyper), args=(gradients,)
            )

        self.strategy.run(replica)

    def pull(self, rank: int) -> Tensors:
        values = {}
        for variable in self.order:
            if variable.kind != "embedding":
                with (
                    self.devices.at(HOST if self.on_host else rank),
                    tf.name_scope(f"read/{variable.name}/"),
                ):
                    value = self.held[variable.name].read_value()
                values[variable.name] = self.move(value, rank)
        return values

    def look_up(self, rank: int, batch: Tensors) -> tuple[Tensors, Tensors]:
        rows, ids = {}, {}
        for name in self.tables:
            ids[name] = batch[self.module.lookup_arrays[name]]
            with self.devices.at(HOST if self.on_host else rank), tf.name_scope(f"lookup/{name}/"):
                asked = (
                    batch[f"{self.module.lookup_arrays[name]}_host"] if self.on_host else ids[name]
                )
                found = tf.gather(self.held[name], asked)  # (B, T, width)
            rows[name] = self.move(found, rank)
        return rows, ids

    def _gradients(self, rank: int, tower: Tower, batch: Tensors) -> dict[str, Any]:
        """Return a replica's gradients; a table's as rows on the host, else of its size."""
        gradients: dict[str, Any] = dict(tower.gradients)
        for name in self.tables:
            if self.on_host:
                with self.devices.at(HOST):
                    ids = tf.reshape(batch[f"{self.module.lookup_arrays[name]}_host"], [-1])
                gradients[name] = tf.IndexedSlices(tower.rows[name], ids)
            else:
                with self.devices.at(rank), tf.name_scope(f"merge/densify/{rank}/"):
                    gradients[name] = tf.math.unsorted_segment_sum(
                        tower.rows[name], tower.ids[name], self.held[name].shape[0]
                    )
        return gradients

    def _reduce(self, strategy: Any, gradients: dict[str, Any], hyper: tf.Tensor) -> None:
        """In cross-replica context: sum all replicas' gradients, and update every variable."""
        total, names = tf.distribute.ReduceOp.SUM, [variable.name for variable in self.order]
        if self.on_host:
            merged = []
            for name in names:
                with tf.name_scope(f"merge/{name}/"):
                    merged.append(
                        strategy.extended.reduce_to(total, gradients[name], self.held[name])
                    )
        else:
            with tf.name_scope("merge/all/0/"):
                merged = strategy.extended.batch_reduce_to(
                    total, [(gradients[name], self.held[name]) for name in names]
                )
        for name, gradient in zip(names, merged, strict=True):

            def update(
                variable: tf.Variable, gradient: Any, *slots: tf.Variable, name: str = name
            ) -> None:
                if isinstance(gradient, tf.IndexedSlices):
                    with tf.name_scope(f"merge/{name}/"):
                        gradient = tf.math.unsorted_segment_sum(
                            gradient.values, gradient.indices, variable.shape[0]
                        )
                if variable.device not in self.numbers:
                    self.numbers[variable.device] = tf.identity(hyper)
                with tf.name_scope(f"update/{name}/"):
                    rule, numbers = self.context.rule, self.numbers[variable.device]
                    rules.apply(rule, variable, list(slots), gradient, numbers, self.locking)

            slots = [plain(slot) for slot in self.slots[name]]
            strategy.extended.update(self.held[name], update, args=(gradient, *slots), group=False)

    def masters(self) -> Iterator[tuple[int, Variable, tf.Variable]]:
        for variable in self.order:
            for rank, held in enumerate(
                self.strategy.experimental_local_results(plain(self.held[variable.name]))
            ):
                yield rank, variable, held
