"""Problems with real gradients, small enough for thousands of updates a second: numpy, float64, one
flat vector of parameters. All follows from a description, which goes into Records and to workers: a
gradient has the same bits wherever it is made, if BLAS uses one thread.
"""

from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Protocol, Self

import numpy as np
from pydantic import Field, model_validator

from multigpu.spec.schema import Strict

Count = Annotated[int, Field(ge=1)]


class Description(Strict):
    """Common to all problems. `rows`: to train on.

    batch_size: rows of one gradient, drawn with replacement from the worker's shard; as many as the
        shard has: all of it, in order.
    shards: worker w draws from the rows whose index is w modulo `shards`; 1: every worker draws
        from all rows.
    seed: of the generated data and of the draws.
    """

    batch_size: Count = 32
    shards: Count = 1
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _a_row_a_shard(self) -> Self:
        # each problem has rows: a field, or a data set's own
        rows: int = self.rows  # type: ignore[attr-defined]
        if self.shards > rows:
            raise ValueError(f"{rows} rows cannot be split into {self.shards} shards")
        return self


class Batches:
    """Rows of every batch, by the description alone, drawn by the block, which is faster."""

    BLOCK = 32

    def __init__(self, description: Description, rows: int) -> None:
        self.description, self.rows = description, rows
        self._held: dict[int, tuple[int, np.ndarray]] = {}  # by worker, its latest block

    def rows_of(self, worker: int, draw: int) -> np.ndarray:
        """Indices of rows, [batch_size]."""
        shards, size = self.description.shards, self.description.batch_size
        shard = worker % shards
        count = len(range(shard, self.rows, shards))
        if size == count:
            return np.arange(shard, self.rows, shards)
        number, place = divmod(draw, self.BLOCK)
        held, block = self._held.get(worker, (-1, np.empty(0)))
        if held != number:
            generator = np.random.default_rng((self.description.seed, 3, worker, number))
            block = shard + shards * generator.integers(count, size=(self.BLOCK, size))
            self._held[worker] = number, block
        return block[place]


class Problem(Protocol):
    """The interface of a problem for the server and the workers. `size` is the number of
    parameters, `dtype` their type.

    initial: parameters to start from, [size]. gradient: of the mean loss over the worker's
        `draw`-th batch, [size]. loss: mean over all training rows. error: share of test rows that
        are classified wrong; None without classes.
    """

    size: int
    dtype: np.dtype

    def initial(self, seed: int = 0) -> np.ndarray: ...

    def gradient(self, parameters: np.ndarray, worker: int, draw: int) -> np.ndarray: ...

    def loss(self, parameters: np.ndarray) -> float: ...

    def error(self, parameters: np.ndarray) -> float | None: ...


class LinearRegression(Description):
    """y = X w* + noise with standard normal X and w*; loss: half the mean squared error."""

    kind: Literal["linear_regression"] = "linear_regression"
    features: Count = 10
    rows: Count = 1000
    noise: Annotated[float, Field(ge=0)] = 0.5

    def build(self) -> "LinearProblem":
        return LinearProblem(self)

    def inputs(self, generator: np.random.Generator) -> np.ndarray:
        return generator.standard_normal((self.rows, self.features))


class RareFeatures(LinearRegression):
    """As `LinearRegression`, of features that a row has (1) or not (0): the j-th, from 1, with
    probability 1 / 2j, as words of a text.
    """

    # tells it from its parent
    kind: Literal["rare_features"] = "rare_features"  # type: ignore[assignment]

    def inputs(self, generator: np.random.Generator) -> np.ndarray:
        return (
            generator.random((self.rows, self.features)) < 0.5 / np.arange(1, self.features + 1)
        ).astype(np.float64)


class DigitsProblem(Description):
    """scikit-learn's handwritten digits: 8 x 8 pixels, 10 classes, 1,437 rows to train and 360 to
    test.
    hidden: widths of the hidden layers; none: multinomial logistic regression (650 parameters,
        convex).
    """

    kind: Literal["digits"] = "digits"
    rows: ClassVar[int] = 1437
    hidden: tuple[Count, ...] = ()

    def build(self) -> "Classification":
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        # the split is part of the problem, whatever the seed
        order = np.random.default_rng(0).permutation(len(labels))
        return Classification(self, Network(64, self.hidden, 10), pixels[order] / 16, labels[order])


class PlantedTeacher(Description):
    """Images of noise, labelled by a fixed random network with one hidden layer; the default has
    CIFAR's sizes (32 x 32 x 3, 10 classes).
    label_noise: share of training rows with a random label. The test rows have none.
    """

    kind: Literal["planted_teacher"] = "planted_teacher"
    features: Count = 3072
    rows: Count = 4096
    test_rows: Count = 1024
    hidden: tuple[Count, ...] = (64,)
    teacher_hidden: Count = 32
    label_noise: Annotated[float, Field(ge=0, le=1)] = 0.05

    def build(self) -> "Classification":
        generator = np.random.default_rng((self.seed, 1))
        inputs = generator.standard_normal((self.rows + self.test_rows, self.features))
        teacher = Network(self.features, (self.teacher_hidden,), 10)
        labels = teacher.forward(teacher.initial(generator), inputs)[-1].argmax(axis=1)
        flipped = generator.random(self.rows) < self.label_noise
        labels[: self.rows][flipped] = generator.integers(10, size=int(flipped.sum()))
        return Classification(self, Network(self.features, self.hidden, 10), inputs, labels)


class LinearProblem:
    """See `LinearRegression`. `planted` is w*; `best_loss` is the least loss."""

    dtype = np.dtype(np.float64)

    def __init__(self, description: LinearRegression) -> None:
        self.size = description.features
        generator = np.random.default_rng((description.seed, 1))
        self.inputs = description.inputs(generator)
        self.planted = generator.standard_normal(description.features)
        self.targets = self.inputs @ self.planted + description.noise * generator.standard_normal(
            description.rows
        )
        self.batches = Batches(description, description.rows)
        self.best_loss = self.loss(np.linalg.lstsq(self.inputs, self.targets, rcond=None)[0])

    def initial(self, seed: int = 0) -> np.ndarray:
        return np.zeros(self.size)

    def gradient(self, parameters: np.ndarray, worker: int, draw: int) -> np.ndarray:
        rows = self.batches.rows_of(worker, draw)
        inputs = self.inputs[rows]
        return inputs.T @ (inputs @ parameters - self.targets[rows]) / len(rows)

    def loss(self, parameters: np.ndarray) -> float:
        return float(0.5 * np.mean((self.inputs @ parameters - self.targets) ** 2))

    def error(self, parameters: np.ndarray) -> float | None:
        return None

    def of_rare(self, parameters: np.ndarray, rates: np.ndarray) -> dict[str, float]:
        """Of the later half of the features. rare_missed: squares of what is missing of their
        planted weights, over the weights' own (0: found, 1: as at the start). rare_rate: the
        geometric mean of their rates over that of the other half.
        """
        half, logs = self.size // 2, np.log(rates)
        with np.errstate(over="ignore"):  # of what diverged
            missed = np.sum((parameters - self.planted)[half:] ** 2) / np.sum(
                self.planted[half:] ** 2
            )
        return {
            "rare_missed": float(missed),
            "rare_rate": float(np.exp(np.nanmean(logs[half:]) - np.nanmean(logs[:half]))),
        }


class Classification:
    """Labelled rows, a network and its mean cross entropy, nats; further rows are for tests."""

    dtype = np.dtype(np.float64)

    def __init__(
        self,
        description: DigitsProblem | PlantedTeacher,
        network: "Network",
        inputs: np.ndarray,
        labels: np.ndarray,
    ) -> None:
        self.network, self.size, rows = network, network.size, description.rows
        self.batches = Batches(description, rows)
        self.inputs = inputs[:rows]
        self.labels = labels[:rows]
        self.test_inputs = inputs[rows:]
        self.test_labels = labels[rows:]

    def initial(self, seed: int = 0) -> np.ndarray:
        return self.network.initial(np.random.default_rng((seed, 2)))

    def gradient(self, parameters: np.ndarray, worker: int, draw: int) -> np.ndarray:
        rows = self.batches.rows_of(worker, draw)
        return self.network.gradient(parameters, self.inputs[rows], self.labels[rows])

    def loss(self, parameters: np.ndarray) -> float:
        logits = self.network.forward(parameters, self.inputs)[-1]
        return float(np.mean(-_log_softmax(logits)[np.arange(len(self.labels)), self.labels]))

    def error(self, parameters: np.ndarray) -> float | None:
        found = self.network.forward(parameters, self.test_inputs)[-1].argmax(axis=1)
        return float(np.mean(found != self.test_labels))


class Network:
    """Layers of widths `inputs`, `*hidden`, `classes`. The flat vector holds, layer by layer, the
    kernel [in, out] and the bias [out].
    """

    def __init__(self, inputs: int, hidden: tuple[int, ...], classes: int) -> None:
        self.shapes = tuple(pairwise((inputs, *hidden, classes)))
        self.size = sum(rows * columns + columns for rows, columns in self.shapes)

    def initial(self, generator: np.random.Generator) -> np.ndarray:
        """Kernels normal with variance 2 / inputs (He et al. 2015), biases zero."""
        flat = np.zeros(self.size)
        for kernel, _ in self._layers(flat):
            kernel[...] = generator.standard_normal(kernel.shape) * np.sqrt(2 / kernel.shape[0])
        return flat

    def gradient(
        self, parameters: np.ndarray, inputs: np.ndarray, labels: np.ndarray
    ) -> np.ndarray:
        """Gradient of the mean cross entropy by the parameters, [size]."""
        activations = self.forward(parameters, inputs)
        delta = np.exp(_log_softmax(activations[-1]))
        delta[np.arange(len(labels)), labels] -= 1
        delta /= len(labels)
        flat = np.empty(self.size)
        layers, gradients = self._layers(parameters), self._layers(flat)
        for number in reversed(range(len(layers))):
            kernel, bias = gradients[number]
            kernel[...] = activations[number].T @ delta
            bias[...] = delta.sum(axis=0)
            if number:
                delta = (delta @ layers[number][0].T) * (activations[number] > 0)
        return flat

    def _layers(self, flat: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """(kernel, bias) of every layer, as views."""
        cuts = np.cumsum(
            [size for rows, columns in self.shapes for size in (rows * columns, columns)]
        )[:-1]
        parts = np.split(flat, cuts)
        return [
            (kernel.reshape(shape), bias)
            for shape, kernel, bias in zip(self.shapes, parts[::2], parts[1::2], strict=True)
        ]

    def forward(self, parameters: np.ndarray, inputs: np.ndarray) -> list[np.ndarray]:
        """The input of every layer [rows, width], then the logits [rows, classes]."""
        values = [inputs]
        for number, (kernel, bias) in enumerate(self._layers(parameters), 1):
            value = values[-1] @ kernel + bias
            values.append(np.maximum(value, 0) if number < len(self.shapes) else value)
        return values


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
