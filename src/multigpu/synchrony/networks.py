"""A fully connected network with rectifiers and cross entropy over one flat vector of float64 parameters, in numpy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np


class Network:
    """Layers of widths `inputs`, `*hidden`, `classes`; without hidden layers multinomial logistic regression.

    The flat vector holds, layer by layer, the kernel [in, out] and the bias [out].
    """

    def __init__(self, inputs: int, hidden: tuple[int, ...], classes: int) -> None:
        widths = (inputs, *hidden, classes)
        self.shapes = tuple(pairwise(widths))
        self.size = sum(rows * columns + columns for rows, columns in self.shapes)

    def initial(self, generator: np.random.Generator) -> np.ndarray:
        """Kernels normal with variance 2 / inputs (He et al. 2015), biases zero."""
        flat = np.zeros(self.size)
        for kernel, _ in self._layers(flat):
            kernel[...] = generator.standard_normal(kernel.shape) * np.sqrt(2 / kernel.shape[0])
        return flat

    def outputs(self, parameters: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """Logits [rows, classes] of inputs [rows, features]."""
        return self._forward(parameters, inputs)[-1]

    def loss(self, parameters: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Mean cross entropy in nats."""
        logits = self.outputs(parameters, inputs)
        return float(np.mean(-_log_softmax(logits)[np.arange(len(labels)), labels]))

    def gradient(self, parameters: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Gradient of `loss` by the parameters, [size]."""
        activations = self._forward(parameters, inputs)
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
        views, at = [], 0
        for rows, columns in self.shapes:
            middle, end = at + rows * columns, at + rows * columns + columns
            views.append((flat[at:middle].reshape(rows, columns), flat[middle:end]))
            at = end
        return views

    def _forward(self, parameters: np.ndarray, inputs: np.ndarray) -> list[np.ndarray]:
        """The input of every layer, then the logits."""
        values = [inputs]
        layers = self._layers(parameters)
        for number, (kernel, bias) in enumerate(layers):
            value = values[-1] @ kernel + bias
            values.append(np.maximum(value, 0) if number < len(layers) - 1 else value)
        return values


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
