"""The two-tower model in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from multigpu.engines.tensorflow.module import Form, Tensors
from multigpu.workloads.base import Model, Variable
from multigpu.workloads.deepconn.description import TABLE, TOWERS, DeepconnConfig


def build(model: Model, form: Form) -> Deepconn:
    """The functions of a two-tower model.

    Raises:
        ValueError: a layout is named; only images have one.
    """
    if form.layout is not None:
        raise ValueError(f"layout {form.layout!r} has no meaning for reviews: leave it out")
    return Deepconn(model, form)


class Deepconn:
    """Sum of a shard's squared errors over its rows, of values named as the description's variables.

    Convolutions are stored [width, embedding, filters], as TensorFlow wants them.
    """

    lookup_arrays = {TABLE: "words"}

    def __init__(self, model: Model, form: Form) -> None:
        self.config: DeepconnConfig = model.config
        self.form = form
        self.statistics: dict[str, tuple[tuple[int, ...], float]] = {}

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
        user, item = (self._tower(values, name, text) for name, text in zip(TOWERS, texts, strict=True))
        ratings = tf.reduce_sum(user * item, 1) if self.config.factors is None else self._machine(values, tf.concat([user, item], 1))
        return tf.reduce_sum(tf.square(tf.cast(ratings, self.form.dtype) - batch["ratings"])), {}

    def _tower(self, values: Tensors, name: str, text: tf.Tensor) -> tf.Tensor:
        """One text of each row, (B, length, embedding) -> (B, dense)."""
        x = tf.nn.conv1d(text, values[f"{name}_conv_kernel"], 1, "VALID") + values[f"{name}_conv_bias"]  # (B, positions, filters)
        x = tf.tanh(x)[:, None]  # pooling takes images: of one row of pixels
        x = tf.nn.max_pool2d(x, (1, self.config.pool), 1, "VALID")
        x = tf.reshape(x, [-1, self.config.flat])
        return tf.nn.relu(tf.matmul(x, values[f"{name}_dense_kernel"], transpose_b=True) + values[f"{name}_dense_bias"])

    def _machine(self, values: Tensors, z: tf.Tensor) -> tf.Tensor:
        """A factorisation machine of second order, (B, 2 x dense) -> (B,): see the PyTorch twin."""
        factors = values["machine_factors"]
        pairs = tf.square(tf.matmul(z, factors)) - tf.matmul(tf.square(z), tf.square(factors))  # (B, factors)
        return values["machine_bias"] + tf.squeeze(tf.matmul(z, values["machine_weights"]), 1) + tf.reduce_sum(pairs, 1) / 2
