"""Two small Keras models, functional and subclassed, which are compared in a race."""

import keras
import numpy as np

import multigpu as mg


def functional() -> keras.Model:
    x = keras.Input((8,))
    return keras.Model(x, keras.layers.Dense(1)(keras.layers.Dense(16, activation="relu")(x)))


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1)

    def call(self, x):
        return self.last(self.first(x))


def batch(n: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = generator.normal(size=(n, 8)).astype("float32")
    return x, x.sum(1, keepdims=True)


loss = keras.losses.MeanSquaredError()
functional_job = mg.Job(functional, batch, loss, mg.SGD(0.05), batch_size=8)
subclassed_job = mg.Job(Subclassed, batch, loss, mg.SGD(0.05), batch_size=8)
