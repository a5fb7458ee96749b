"""Problems with real gradients, small enough for thousands of updates a second: numpy, float64, one flat vector of parameters.

A problem is described by a frozen model (it goes into Records and to worker processes) and built from it. Everything follows
from the description: `gradient(parameters, worker, draw)` gives the same bits wherever it is called, if BLAS uses one thread.
"""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

import numpy as np
from pydantic import Field, model_validator

from multigpu.synchrony.networks import Network
from multigpu.synchrony.problem_description import Batches, Count, Description
from multigpu.synchrony.trained_models import TrainedModel


class Problem(Protocol):
    """What the server and the workers need of a problem. `size` is the number of parameters, `dtype` their type."""

    size: int
    dtype: np.dtype

    def initial(self, seed: int = 0) -> np.ndarray:
        """Parameters to start from, [size]."""

    def gradient(self, parameters: np.ndarray, worker: int, draw: int) -> np.ndarray:
        """Gradient of the mean loss over the worker's `draw`-th batch, [size]."""

    def loss(self, parameters: np.ndarray) -> float:
        """Mean loss over all training rows."""

    def error(self, parameters: np.ndarray) -> float | None:
        """Share of test rows that are classified wrong; None without classes."""


class LinearRegression(Description):
    """y = X w* + noise with standard normal X and w*; loss: half the mean squared error. Its minimum is known."""

    kind: Literal["linear_regression"] = "linear_regression"
    features: Count = 10
    rows: Count = 1000
    noise: Annotated[float, Field(ge=0)] = 0.5

    @model_validator(mode="after")
    def _possible(self) -> LinearRegression:
        self._check_shards(self.rows)
        return self

    def build(self) -> LinearProblem:
        return LinearProblem(self)


class Digits(Description):
    """scikit-learn's handwritten digits: 8 x 8 pixels, 10 classes, 1,437 rows to train and 360 to test.

    hidden: widths of the hidden layers; none: multinomial logistic regression (650 parameters, convex).
    """

    kind: Literal["digits"] = "digits"
    hidden: tuple[Count, ...] = ()

    def build(self) -> Classification:
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(labels))  # the split is part of the problem, whatever the seed
        train, test = order[:1437], order[1437:]
        inputs = pixels / 16
        return Classification(self, Network(64, self.hidden, 10), inputs[train], labels[train], inputs[test], labels[test])


class PlantedTeacher(Description):
    """Images of noise, labelled by a fixed random network with one hidden layer; the default has CIFAR's sizes (32 x 32 x 3, 10 classes).

    label_noise: share of training rows with a random label. The test rows have none.
    """

    kind: Literal["planted_teacher"] = "planted_teacher"
    features: Count = 3072
    rows: Count = 4096
    test_rows: Count = 1024
    hidden: tuple[Count, ...] = (64,)
    teacher_hidden: Count = 32
    label_noise: Annotated[float, Field(ge=0, le=1)] = 0.05

    @model_validator(mode="after")
    def _possible(self) -> PlantedTeacher:
        self._check_shards(self.rows)
        return self

    def build(self) -> Classification:
        generator = np.random.default_rng((self.seed, 1))
        inputs = generator.standard_normal((self.rows + self.test_rows, self.features))
        teacher = Network(self.features, (self.teacher_hidden,), 10)
        labels = teacher.outputs(teacher.initial(generator), inputs).argmax(axis=1)
        flipped = generator.random(self.rows) < self.label_noise
        labels[: self.rows][flipped] = generator.integers(10, size=int(flipped.sum()))
        train, test = slice(None, self.rows), slice(self.rows, None)
        return Classification(self, Network(self.features, self.hidden, 10), inputs[train], labels[train], inputs[test], labels[test])


ProblemDescription = Annotated[LinearRegression | Digits | PlantedTeacher | TrainedModel, Field(discriminator="kind")]


class LinearProblem:
    """See `LinearRegression`. `best` is the minimiser and `best_loss` the loss there, both from least squares."""

    dtype = np.dtype(np.float64)

    def __init__(self, description: LinearRegression) -> None:
        self.description = description
        self.size = description.features
        generator = np.random.default_rng((description.seed, 1))
        self.inputs = generator.standard_normal((description.rows, description.features))
        planted = generator.standard_normal(description.features)
        self.targets = self.inputs @ planted + description.noise * generator.standard_normal(description.rows)
        self.batches = Batches(description, description.rows)
        self.best = np.linalg.lstsq(self.inputs, self.targets, rcond=None)[0]
        self.best_loss = self.loss(self.best)

    def initial(self, seed: int = 0) -> np.ndarray:
        """Zeros, whatever the seed."""
        return np.zeros(self.size)

    def gradient(self, parameters: np.ndarray, worker: int, draw: int) -> np.ndarray:
        rows = self.batches.rows_of(worker, draw)
        inputs = self.inputs[rows]
        return inputs.T @ (inputs @ parameters - self.targets[rows]) / len(rows)

    def loss(self, parameters: np.ndarray) -> float:
        return float(0.5 * np.mean((self.inputs @ parameters - self.targets) ** 2))

    def error(self, parameters: np.ndarray) -> float | None:
        return None


class Classification:
    """Rows with labels, a network, and cross entropy."""

    dtype = np.dtype(np.float64)

    def __init__(
        self,
        description: Digits | PlantedTeacher,
        network: Network,
        inputs: np.ndarray,
        labels: np.ndarray,
        test_inputs: np.ndarray,
        test_labels: np.ndarray,
    ) -> None:
        description._check_shards(len(labels))
        self.description, self.network, self.size = description, network, network.size
        self.batches = Batches(description, len(labels))
        self.inputs, self.labels, self.test_inputs, self.test_labels = inputs, labels, test_inputs, test_labels

    def initial(self, seed: int = 0) -> np.ndarray:
        """He's normal initialisation, biases zero."""
        return self.network.initial(np.random.default_rng((seed, 2)))

    def gradient(self, parameters: np.ndarray, worker: int, draw: int) -> np.ndarray:
        rows = self.batches.rows_of(worker, draw)
        return self.network.gradient(parameters, self.inputs[rows], self.labels[rows])

    def loss(self, parameters: np.ndarray) -> float:
        return self.network.loss(parameters, self.inputs, self.labels)

    def error(self, parameters: np.ndarray) -> float | None:
        found = self.network.outputs(parameters, self.test_inputs).argmax(axis=1)
        return float(np.mean(found != self.test_labels))
