"""Short forms that several families of networks share."""

from __future__ import annotations

from typing import Literal

from multigpu.workloads.cnn.layers import Convolution, Dense, Dropout, Network, Pads, Relu


def conv_relu(filters: int, kernel: int, stride: int = 1, pads: Pads | Literal["same"] = "same") -> Network:
    """A convolution with bias, then ReLU: tf_cnn_benchmarks' convolution where nothing is normalised.

    With its gain of 1: max-pooling and dropout raise activations from layer to layer, and with 2 AlexNet's loss overflows.
    """
    return (Convolution(kernel, stride, pads, filters, bias=True, gain=1.0), Relu())


def dense_relu(units: int, dropout: float = 0.0) -> Network:
    """A dense layer, ReLU, and dropout where its rate is not 0."""
    return (Dense(units, gain=2.0), Relu(), *((Dropout(dropout),) if dropout else ()))


def thin(filters: int, shrink: int) -> int:
    """A `shrink`-th of the filters, at least one: the same network in a size for tests and CPUs."""
    return max(1, filters // shrink)
