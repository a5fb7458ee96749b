"""The two-tower model in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from multigpu.engines.tensorflow.module import Form, Tensors
from multigpu.workloads.base import Model, Variable
from multigpu.workloads.deepconn.description import TABLE, TOWERS, DeepconnConfig
from multigpu.workloads.deepconn.tensorflow_stages import joined, stage_functions, through_tower


def build(model: Model, form: Form) -> Deepconn:
    """The functions of a two-tower model."""
    return Deepconn(model, form)


class Deepconn:
    """Sum of a shard's squared errors over its rows, of values named as the description's variables.

    Convolutions are stored [width, embedding, filters], as TensorFlow wants them.
    """

    lookup_arrays = {TABLE: "words"}

    def __init__(self, model: Model, form: Form) -> None:
        self.config: DeepconnConfig = model.config
        self.form, self.stages = form, stage_functions(model)
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
        user, item = (through_tower(self.stages, values, tower, text) for tower, text in zip(TOWERS, texts, strict=True))
        ratings = joined(self.config, values, user, item)
        return tf.reduce_sum(tf.square(tf.cast(ratings, self.form.dtype) - batch["ratings"])), {}
