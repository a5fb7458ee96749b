"""The two-tower model in TensorFlow, and what each of its stages computes."""

import tensorflow as tf

from multigpu.spec.model import Model
from multigpu.workloads.tensorflow_module import Form, StepModule, Tensors
from multigpu_study.workloads.deepconn.description import (
    TOWERS,
    Compute,
    DeepconnConfig,
    stages_of,
    through_tower,
)
from multigpu_study.workloads.deepconn.reviews import TABLE


def stage_functions(model: Model) -> dict[str, Compute]:
    """Stage -> what it computes; the table's value is its handle here."""
    config: DeepconnConfig = model.config
    return stages_of(
        embed=tf.gather,
        # (B, positions, filters)
        conv=lambda x, kernel, bias: tf.tanh(tf.nn.conv1d(x, kernel, 1, "VALID") + bias),
        pool=lambda x: tf.squeeze(tf.nn.max_pool2d(x[:, None], (1, config.pool), 1, "VALID"), 1),
        flatten=lambda x: tf.reshape(x, [-1, config.flat]),
        dense=lambda x, kernel, bias: tf.nn.relu(tf.matmul(x, kernel, transpose_b=True) + bias),
        error=lambda user, item, ratings: tf.reduce_sum(tf.square(joined(user, item) - ratings)),
    )


def joined(user: tf.Tensor, item: tf.Tensor) -> tf.Tensor:
    """Ratings from both towers, (B, dense) twice -> (B,): their dot product."""
    return tf.reduce_sum(user * item, 1)


class Deepconn(StepModule):
    """Sum of a shard's squared errors over its rows."""

    lookup_arrays = {TABLE: "words"}

    def __init__(self, model: Model, form: Form) -> None:
        self.config: DeepconnConfig = model.config
        self.form, self.stages = form, stage_functions(model)

    def loss(
        self, values: Tensors, batch: Tensors, rows: Tensors, statistics: Tensors
    ) -> tuple[tf.Tensor, Tensors]:
        """Sum errors of ratings (B,); rows: (B, 2 x length, embedding), user's text first."""
        values = {name: tf.cast(value, self.form.compute) for name, value in values.items()}
        texts = tf.split(tf.cast(rows[TABLE], self.form.compute), 2, 1)
        user, item = (
            through_tower(self.stages, values, tower, text)
            for tower, text in zip(TOWERS, texts, strict=True)
        )
        ratings = joined(user, item)
        return tf.reduce_sum(tf.square(tf.cast(ratings, self.form.dtype) - batch["ratings"])), {}


def build(model: Model, form: Form) -> Deepconn:
    """The functions of a two-tower model."""
    return Deepconn(model, form)
