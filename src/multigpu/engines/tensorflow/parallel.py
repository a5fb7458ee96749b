"""make_parallel (Keras' multi_gpu_model) in one graph: one model whose joined batch is sliced over towers, predictions concatenated.
The joined batch is one tensor on the first device, which slices its images. Every tower predicts with copies of the one model's
variables; the predictions come back, are concatenated, and one loss over all of them is computed. Its gradient goes back through
the concatenation, a slice to each tower. See `engines.torch.dispatch.parallel` for PyTorch's twin.
"""

from typing import Any

import tensorflow as tf

from multigpu.engines.tensorflow import rules
from multigpu.engines.tensorflow.module import Tensors
from multigpu.engines.tensorflow.server import ServerTrainer
from multigpu.engines.tensorflow.trainer import Tower


class ParallelTrainer(ServerTrainer):
    """make_parallel (Keras' multi_gpu_model) in one graph: the joined batch on the first device, one loss over all towers' predictions.
    PyTorch's twin says more (`engines.torch.server`). Shards are joined: see `feed.join_shards`. The module says `logits(values, images,
    statistics)`, (B, classes) in the type of products with the running statistics, and `loss_of(logits, labels)`, the sum of the loss.
    """

    module: Any

    def _towers(self, batches: list[Tensors], hyper: tf.Tensor) -> list[Tower]:
        joined, sizes = batches[0], self.context.run.shard_sizes
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
                tf.raw_ops.ResourceScatterUpdate(resource=self.losses[0].handle, indices=step, updates=loss)
        with self.devices.at(0), tf.name_scope("merge/predictions/"):
            slices = tf.split(gradient, sizes)
        towers = []
        for rank, ((tape, own, values), back) in enumerate(zip(passes, slices, strict=True)):
            # said here once more: a tape puts what it makes on the device in scope, not where the tower was
            with self.devices.at(rank), tf.name_scope(f"compute/{rank}/backward/"):
                towers.append(Tower(tape.gradient(own, values, output_gradients=tf.identity(back))))
        return towers

    def _predict(self, rank: int, images: tf.Tensor) -> tuple[tf.GradientTape, tf.Tensor, Tensors]:
        """A tower's forward pass: its tape, its predictions (b, classes) and the values that it watched."""
        values = self.pull(rank)
        with self.devices.at(rank), tf.name_scope(f"compute/{rank}/"):
            statistics = {name: variable.read_value() for name, variable in self.statistics[rank].items()}
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
