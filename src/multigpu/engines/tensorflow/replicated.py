"""Placements that keep all variables on every replica: what differs is how gradients merge."""

import itertools
from collections.abc import Iterator
from functools import reduce
from math import prod

import tensorflow as tf

from multigpu.engines.common.context import Carries
from multigpu.engines.tensorflow import rules
from multigpu.engines.tensorflow.devices import rewrite
from multigpu.engines.tensorflow.feed import Shard
from multigpu.engines.tensorflow.trainer import Context, Tower, Trainer, deduplicated
from multigpu.engines.tensorflow.variables import make_variable
from multigpu.spec.model import Variable
from multigpu.workloads.tensorflow_module import Tensors

# keys of collectives: the group's is GROUP + its size, since one key may never name groups of two
# sizes
GROUP = 1000

INSTANCES = itertools.count(1)
"""One key a collective: an instance keeps its first shape for as long as the process lives."""


class ReplicatedTrainer(Trainer):
    """Variables, slots and update on every replica. Dense gradients are summed by one collective
    (NCCL's on GPUs, TensorFlow's ring on CPUs), or by every replica from copies of all others', or
    not at all. Sparse gradients travel as copies, as rows with their ids.
    """

    carries = Carries({"all_reduce": (False,), "copy": (False,), "none": (False,)})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.reduction = context.placement.reduction
        if self.reduction == "copy":
            # chains of additions would become one sum of many, which begins with whichever input it
            # may overwrite: copies of the variables would drift apart in their last bits
            rewrite(arithmetic=False)
        self.tables = [v.name for v in context.model.variables if v.kind == "embedding"]
        self.order = context.model.variables
        self.copies: list[dict[str, tf.Variable]] = [{} for _ in range(context.replicas)]
        self.slots: list[dict[str, list[tf.Variable]]] = [{} for _ in range(context.replicas)]
        for variable, value in self.initial():
            for rank in range(context.replicas):
                device = self.devices.name(rank)
                self.copies[rank][variable.name] = make_variable(
                    value, self.devices.dtype, device, f"{variable.name}_{rank}"
                )
                self.slots[rank][variable.name] = self._slots(
                    value.shape, rank, f"{variable.name}_{rank}"
                )

    def terms(self, shards: list[Shard]) -> list[int]:
        if self.reduction != "none":
            return super().terms(shards)
        return [shard.batch.loss_terms[shard.batch.rank] for shard in shards]

    def pull(self, rank: int) -> Tensors:
        values = {}
        for name, variable in self.copies[rank].items():
            if name not in self.tables:
                with self.devices.at(rank), tf.name_scope(f"read/{name}/"):
                    values[name] = variable.read_value()
        return values

    def look_up(self, rank: int, batch: Tensors) -> tuple[Tensors, Tensors]:
        rows, ids = {}, {}
        for name in self.tables:
            with self.devices.at(rank), tf.name_scope(f"lookup/{name}/"):
                ids[name] = batch[self.module.lookup_arrays[name]]
                rows[name] = tf.gather(self.copies[rank][name], ids[name])
        return rows, ids

    def finish(self, towers: list[Tower], batches: list[Tensors], hyper: tf.Tensor) -> None:
        for rank, tower in enumerate(towers):
            if not self.context.sparse:  # as document 000: an array of the table's size
                with self.devices.at(rank), tf.name_scope(f"merge/densify/{rank}/"):
                    for name in self.tables:
                        rows = self.copies[rank][name].shape[0]
                        tower.gradients[name] = tf.math.unsorted_segment_sum(
                            tower.rows[name], tower.ids[name], rows
                        )
        merged = self._merged([tower.gradients for tower in towers])
        for rank in range(len(towers)):
            with self.devices.at(rank):
                numbers = tf.identity(hyper)
                for variable in self.order:
                    name = variable.name
                    copy, slots = self.copies[rank][name], self.slots[rank][name]
                    if name in merged[rank]:
                        with tf.name_scope(f"update/{name}/"):
                            rules.apply(self.context.rule, copy, slots, merged[rank][name], numbers)
                        continue
                    with tf.name_scope(f"merge/{name}/"):
                        sources = towers if self.reduction != "none" else [towers[rank]]
                        ids = tf.concat([tf.identity(tower.ids[name]) for tower in sources], 0)
                        rows = tf.concat([tf.identity(tower.rows[name]) for tower in sources], 0)
                        ids, rows = deduplicated(ids, rows)
                    with tf.name_scope(f"update/{name}/"):
                        rules.apply_rows(self.context.rule, copy, slots, ids, rows, numbers)

    def _merged(self, gradients: list[Tensors]) -> list[Tensors]:
        if self.reduction == "none" or len(gradients) == 1:
            return gradients
        names = list(gradients[0])
        shapes = {name: [int(n) for n in self.copies[0][name].shape] for name in names}
        flat = []
        for rank, mine in enumerate(gradients):
            with self.devices.at(rank), tf.name_scope(f"merge/all/{rank}/"):
                flat.append(tf.concat([tf.reshape(mine[name], [-1]) for name in names], 0))
        merged, instance = [], next(INSTANCES)
        for rank in range(len(gradients)):
            with self.devices.at(rank), tf.name_scope(f"merge/all/{rank}/"):
                if self.reduction == "all_reduce":
                    total = self._all_reduce(flat[rank], instance)
                else:
                    total = reduce(tf.add, [tf.identity(one) for one in flat])
                parts = tf.split(total, [prod(shapes[name]) for name in names])
                merged.append(
                    {
                        name: tf.reshape(part, shapes[name])
                        for name, part in zip(names, parts, strict=True)
                    }
                )
        return merged

    def _all_reduce(self, flat: tf.Tensor, instance: int) -> tf.Tensor:
        # the older of the two ops: a trace would put the newer one's instances into sequence, and
        # each waits for all
        return tf.raw_ops.CollectiveReduce(
            input=flat,
            group_size=self.context.replicas,
            group_key=GROUP + self.context.replicas,
            instance_key=instance,
            merge_op="Add",
            final_op="Id",
            subdiv_offsets=[0],
            communication_hint="nccl" if self.devices.cuda else "ring",
        )

    def masters(self) -> Iterator[tuple[int, Variable, tf.Variable]]:
        for rank, copies in enumerate(self.copies):
            for variable in self.order:
                yield rank, variable, copies[variable.name]
