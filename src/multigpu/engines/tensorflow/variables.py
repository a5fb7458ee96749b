"""Initial values, and variables in the layout that TensorFlow wants."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from multigpu.spec.model import Model, Variable
from multigpu.workloads.tensorflow_module import StepModule

AHEAD = 4  # initial values that are drawn at the same time
# values at a time in float64: they stay in the cache, where a whole table in float64 would be new
# memory of twice its size
CHUNK = 1 << 18


def initial_value(variable: Variable, index: int, seed: int) -> np.ndarray:
    """A first value, float32, by its place in the model and the seed, whatever the placement."""
    if variable.init.law == "stored":
        with np.load(variable.init.file) as stored:
            return stored[variable.name].astype(np.float32)
    generator = np.random.default_rng([seed, index])
    law, scale = variable.init.law, np.float32(variable.init.scale)
    if law == "uniform":
        value = generator.random(variable.shape, dtype=np.float32)
        value *= 2  # in place: new memory would take longer than the arithmetic
        value -= 1
        value *= scale
        return value
    if law == "normal":
        return generator.standard_normal(variable.shape, dtype=np.float32) * scale
    return np.full(variable.shape, scale, np.float32)


def initial_values(model: Model, seed: int) -> Iterator[tuple[Variable, np.ndarray]]:
    """Each variable with its initial value, in order, a few of them drawn ahead."""
    with ThreadPoolExecutor(AHEAD) as pool:
        drawn: deque[Future[np.ndarray]] = deque()
        for index, variable in enumerate(model.variables):
            drawn.append(pool.submit(initial_value, variable, index, seed))
            if len(drawn) == AHEAD:
                yield model.variables[index + 1 - AHEAD], drawn.popleft().result()
        for variable in model.variables[len(model.variables) - len(drawn) :]:
            yield variable, drawn.popleft().result()


def squared_distance(value: np.ndarray, start: np.ndarray | None = None) -> float:
    """Sum of squared differences, summed in float64; without `start`, of the values themselves."""
    flat = value.ravel()
    from_flat = None if start is None else start.ravel()
    total = 0.0
    for first in range(0, flat.size, CHUNK):
        part = flat[first : first + CHUNK].astype(np.float64)
        if from_flat is not None:
            part -= from_flat[first : first + CHUNK]
        total += float(part @ part)
    return total


def to_stored(module: StepModule, variable: Variable, value: np.ndarray) -> np.ndarray:
    """From the description's order of axes to TensorFlow's."""
    order = module.stored(variable)
    return value if order is None else np.ascontiguousarray(value.transpose(order))


def from_stored(module: StepModule, variable: Variable, value: np.ndarray) -> np.ndarray:
    """From TensorFlow's order of axes to the description's."""
    order = module.stored(variable)
    return value if order is None else np.ascontiguousarray(value.transpose(np.argsort(order)))


def make_variable(value: np.ndarray, dtype: tf.DType, device: str, name: str) -> tf.Variable:
    """An untracked variable on `device`, which no tape need watch."""
    with tf.device(device):
        return tf.Variable(tf.cast(tf.constant(value), dtype), trainable=False, name=name)


def zeros_variable(shape: tuple[int, ...], dtype: tf.DType, device: str, name: str) -> tf.Variable:
    """The same, made of zeros where it lives."""
    with tf.device(device):
        return tf.Variable(tf.zeros(shape, dtype), trainable=False, name=name)
