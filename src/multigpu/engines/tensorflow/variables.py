"""Initial values, and variables in the layout that TensorFlow wants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from multigpu.engines.tensorflow.module import StepModule
from multigpu.workloads.base import Model, Variable


def initial_value(variable: Variable, index: int, seed: int) -> np.ndarray:
    """The value a variable starts with, float32: a function of its place in the model and the seed, never of its placement."""
    generator = np.random.default_rng([seed, index])
    law, scale = variable.init.law, np.float32(variable.init.scale)
    if law == "uniform":
        return (2 * generator.random(variable.shape, dtype=np.float32) - 1) * scale
    if law == "normal":
        return generator.standard_normal(variable.shape, dtype=np.float32) * scale
    return np.full(variable.shape, scale, np.float32)


def initial_values(model: Model, seed: int) -> Iterator[tuple[Variable, np.ndarray]]:
    """Each variable of the model with its initial value, one at a time (they need not fit in memory together)."""
    for index, variable in enumerate(model.variables):
        yield variable, initial_value(variable, index, seed)


def to_stored(module: StepModule, variable: Variable, value: np.ndarray) -> np.ndarray:
    """From the description's order of axes to TensorFlow's."""
    order = module.stored(variable)
    return value if order is None else np.ascontiguousarray(value.transpose(order))


def from_stored(module: StepModule, variable: Variable, value: np.ndarray) -> np.ndarray:
    """From TensorFlow's order of axes to the description's."""
    order = module.stored(variable)
    return value if order is None else np.ascontiguousarray(value.transpose(np.argsort(order)))


def make_variable(value: np.ndarray, dtype: tf.DType, device: str, name: str) -> tf.Variable:
    """An untracked variable on `device`. Gradients are taken by tensors, so no tape need watch it."""
    with tf.device(device):
        return tf.Variable(tf.cast(tf.constant(value), dtype), trainable=False, name=name)


def zeros_variable(shape: tuple[int, ...], dtype: tf.DType, device: str, name: str) -> tf.Variable:
    """The same, made of zeros where it lives."""
    with tf.device(device):
        return tf.Variable(tf.zeros(shape, dtype), trainable=False, name=name)
