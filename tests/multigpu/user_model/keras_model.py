"""A job of a Keras functional model that is not this study's, as a user would write it."""

from contextlib import nullcontext

import keras
import numpy as np
import tensorflow as tf

import multigpu as mg


class Elsewhere(keras.layers.Layer):
    """What no device here can do in fp64: GPUs have no kernel for Keras' sparse cross-entropy
    then.
    """

    def call(self, x: tf.Tensor) -> tf.Tensor:
        with tf.device("/device:GPU:9") if x.dtype == tf.float64 else nullcontext():
            return tf.identity(x)


def two_inputs() -> keras.Model:
    """An image with batch norm and dropout beside a word of an embedding, whose first convolution
    is frozen.
    """
    image, word = keras.Input((8, 8, 3), name="image"), keras.Input((), dtype="int64", name="word")
    x = keras.layers.Conv2D(4, 3, trainable=False)(image)
    x = keras.layers.BatchNormalization()(keras.layers.Conv2D(6, 3, kernel_regularizer="l2")(x))
    x = keras.layers.Dropout(0.2)(keras.layers.GlobalAveragePooling2D()(keras.layers.ReLU()(x)))
    x = keras.layers.Concatenate()([x, keras.layers.Embedding(50, 6)(word)])
    return keras.Model({"image": image, "word": word}, keras.layers.Dense(10)(Elsewhere()(x)))


def made(seed: int = 3, count: int = 64) -> tf.data.Dataset:
    draw = np.random.default_rng(seed)
    inputs = {
        "image": draw.random((count, 8, 8, 3), np.float32),
        "word": draw.integers(50, size=count),
    }
    return (
        tf.data.Dataset.from_tensor_slices((inputs, draw.integers(10, size=count)))
        .shuffle(count)
        .batch(24)
    )


functional = mg.Job(
    two_inputs,
    made(),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    mg.SGD(0.05, momentum=0.9),
    batch_size=8,
)
