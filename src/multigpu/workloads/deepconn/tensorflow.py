"""The two-tower model in TensorFlow, and what each of its stages computes."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from multigpu.engines.tensorflow.module import Form, StepModule, Tensors
from multigpu.workloads.base import Model, Variable
from multigpu.workloads.deepconn.description import TABLE, TOWERS, DeepconnConfig, through_tower

Compute = Callable[[Tensors, Sequence[tf.Tensor], Sequence[tf.Tensor]], tf.Tensor]
"""From the stage's variables, the outputs that it reads and the arrays that it reads to its own output."""


def stage_functions(model: Model) -> dict[str, Compute]:
    """Stage -> what it computes. The last one returns the sum of the squared errors."""
    config: DeepconnConfig = model.config
    found: dict[str, Compute] = {}
    for tower in TOWERS:

        def embed(values: Tensors, inputs: Sequence[tf.Tensor], arrays: Sequence[tf.Tensor]) -> tf.Tensor:
            # ids arrive with the batch, or from the stage that looks strings up; the table's value is its handle here
            return tf.gather(values[TABLE], (arrays or inputs)[0])  # (B, length, embedding)

        def conv(values: Tensors, inputs: Sequence[tf.Tensor], arrays: Sequence[tf.Tensor], tower: str = tower) -> tf.Tensor:
            x = tf.nn.conv1d(inputs[0], values[f"{tower}_conv_kernel"], 1, "VALID") + values[f"{tower}_conv_bias"]
            return tf.tanh(x)  # (B, positions, filters)

        def pool(values: Tensors, inputs: Sequence[tf.Tensor], arrays: Sequence[tf.Tensor]) -> tf.Tensor:
            return tf.squeeze(tf.nn.max_pool2d(inputs[0][:, None], (1, config.pool), 1, "VALID"), 1)

        def flatten(values: Tensors, inputs: Sequence[tf.Tensor], arrays: Sequence[tf.Tensor]) -> tf.Tensor:
            return tf.reshape(inputs[0], [-1, config.flat])

        def dense(values: Tensors, inputs: Sequence[tf.Tensor], arrays: Sequence[tf.Tensor], tower: str = tower) -> tf.Tensor:
            kernel, bias = values[f"{tower}_dense_kernel"], values[f"{tower}_dense_bias"]
            return tf.nn.relu(tf.matmul(inputs[0], kernel, transpose_b=True) + bias)

        found |= {f"{tower}_{name}": f for name, f in (("embed", embed), ("conv", conv), ("pool", pool), ("flatten", flatten))}
        found[f"{tower}_dense"] = dense

    def rating(values: Tensors, inputs: Sequence[tf.Tensor], arrays: Sequence[tf.Tensor]) -> tf.Tensor:
        return tf.reduce_sum(tf.square(joined(config, values, *inputs) - arrays[0]))

    found["rating"] = rating
    return found


def joined(config: DeepconnConfig, values: Tensors, user: tf.Tensor, item: tf.Tensor) -> tf.Tensor:
    """Ratings from both towers, (B, dense) twice -> (B,): see the PyTorch twin."""
    if config.factors is None:
        return tf.reduce_sum(user * item, 1)
    z, factors = tf.concat([user, item], 1), values["machine_factors"]
    pairs = tf.square(tf.matmul(z, factors)) - tf.matmul(tf.square(z), tf.square(factors))  # (B, factors)
    return values["machine_bias"] + tf.squeeze(tf.matmul(z, values["machine_weights"]), 1) + tf.reduce_sum(pairs, 1) / 2


class Deepconn(StepModule):
    """Sum of a shard's squared errors over its rows, of values named as the description's variables.

    Convolutions are stored [width, embedding, filters], as TensorFlow wants them.
    """

    lookup_arrays = {TABLE: "words"}

    def __init__(self, model: Model, form: Form) -> None:
        self.config: DeepconnConfig = model.config
        self.form, self.stages = form, stage_functions(model)

    def stored(self, variable: Variable) -> tuple[int, ...] | None:
        """Convolutions [filters, embedding, width] become [width, embedding, filters]."""
        return (2, 1, 0) if variable.kind == "convolution" else None

    def loss(self, values: Tensors, batch: Tensors, rows: Tensors, statistics: Tensors) -> tuple[tf.Tensor, Tensors]:
        """The sum of the loss over the shard's rows, a float32 (or float64) scalar.

        Args:
            values: every variable but the table.
            batch: ratings (B,), floating-point.
            rows: of the table, (B, 2 x length, embedding): the user's text and then the item's.
        """
        values = {name: tf.cast(value, self.form.compute) for name, value in values.items()}
        texts = tf.split(tf.cast(rows[TABLE], self.form.compute), 2, 1)
        user, item = (through_tower(self.stages, values, tower, text) for tower, text in zip(TOWERS, texts, strict=True))
        ratings = joined(self.config, values, user, item)
        return tf.reduce_sum(tf.square(tf.cast(ratings, self.form.dtype) - batch["ratings"])), {}


def build(model: Model, form: Form) -> Deepconn:
    """The functions of a two-tower model."""
    return Deepconn(model, form)
