"""make_parallel (Keras' multi_gpu_model) in one graph: one model whose joined batch is sliced over towers, predictions concatenated.

The joined batch is one tensor on the first device, which slices its images. Every tower predicts with copies of the one model's
variables; the predictions come back, are concatenated, and one loss over all of them is computed. Its gradient goes back through
the concatenation, a slice to each tower. See `engines.torch.dispatch.parallel` for PyTorch's twin.
"""

from collections.abc import Mapping
from typing import Protocol, cast

import numpy as np
import tensorflow as tf

from multigpu.engines.tensorflow import rules
from multigpu.engines.tensorflow.module import Tensors
from multigpu.engines.tensorflow.server import ServerTrainer
from multigpu.engines.tensorflow.trainer import Tower


class Predicting(Protocol):
    """What this placement asks of a model beside its loss."""

    def logits(self, values: Tensors, images: tf.Tensor, statistics: Tensors) -> tuple[tf.Tensor, Tensors]:
        """(B, channels, height, width) -> (B, classes) in the type of products, and the running statistics after it."""
        ...

    def loss_of(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """(B, classes), (B,) -> the sum of the loss."""
        ...


class Single(tf.Module):
    """The one model without towers: what is saved (`tf.train.Checkpoint(model=...)`) and what serves.

    weights, statistics: by the description's names, in TensorFlow's layout.
    """

    def __init__(self, model: Predicting, weights: Mapping[str, tf.Tensor], statistics: Mapping[str, tf.Tensor]) -> None:
        super().__init__()
        self.model = model
        self.weights = {name: tf.Variable(value, trainable=False) for name, value in weights.items()}
        self.statistics = {name: tf.Variable(value, trainable=False) for name, value in statistics.items()}

    def logits(self, images: tf.Tensor) -> tf.Tensor:
        """(B, channels, height, width) -> (B, classes), batch norms by the batch's own statistics as in training."""
        weights = {name: variable.read_value() for name, variable in self.weights.items()}
        return self.model.logits(weights, images, {name: variable.read_value() for name, variable in self.statistics.items()})[0]


class ParallelTrainer(ServerTrainer):
    """All towers, and the one loss on the first device. Shards are joined: see `feed.join_shards`."""

    @property
    def model(self) -> Predicting:
        """The module, which also predicts."""
        return cast(Predicting, self.module)

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
                loss = self.model.loss_of(predictions, joined["labels"]) / numbers[rules.TERMS]
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
            logits = self.model.logits
            if self.context.run.execution == "xla":
                logits = tf.function(logits, jit_compile=True, autograph=False)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(list(values.values()))
                predictions, updated = logits(values, own, statistics)
            with tf.name_scope("kept"):
                for name, value in updated.items():
                    self.statistics[rank][name].assign(value)
        return tape, predictions, values

    def single(self) -> Single:
        """The one model with the current values and the first tower's running statistics, on the first device."""
        with self.devices.at(0):
            weights = {name: tf.identity(master.numpy()) for name, master in self.held.items()}
            return Single(self.model, weights, {name: tf.identity(own) for name, own in self.statistics[0].items()})

    def load(self, single: Single) -> None:
        """Go on from the one model's values and running statistics; slots of the rule start anew.

        Raises:
            ValueError: a variable is missing or has another shape.
        """
        for name, master in self.held.items():
            given = single.weights.get(name)
            if given is None or given.shape != master.shape:
                got = "nothing" if given is None else tuple(given.shape)
                raise ValueError(f"variable {name!r} has shape {tuple(master.shape)} and {got} was given: load the same model's variables")
        for name, master in self.held.items():
            master.assign(single.weights[name].numpy())
            for slot in self.slots[name]:
                slot.assign(np.zeros(slot.shape, slot.dtype.as_numpy_dtype))
        for own in self.statistics:
            for name, variable in own.items():
                variable.assign(single.statistics[name].numpy())
