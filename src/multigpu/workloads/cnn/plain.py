"""tf_cnn_benchmarks' plain networks: trivial, LeNet, AlexNet, OverFeat, VGG; and the short forms
that other networks share with them.
"""

from typing import Any, Literal

from multigpu.workloads.cnn.layers import (
    Convolution,
    Dense,
    Dropout,
    Flatten,
    LocalResponseNorm,
    MaxPool,
    Relu,
)
from multigpu.workloads.cnn.network import NO_PADS, Network, Pads


def conv_relu(
    filters: int, kernel: int, stride: int = 1, pads: Pads | Literal["same"] = "same"
) -> Network:
    """A convolution with bias, then ReLU, with tf_cnn_benchmarks' gain of 1: with 2 AlexNet's loss
    overflows by pooling and dropout.
    """
    return (Convolution(kernel, stride, pads, filters, bias=True, gain=1.0), Relu())


def dense_relu(units: int, dropout: float = 0.0) -> Network:
    """A dense layer, ReLU, and dropout where its rate is not 0."""
    return (Dense(units, gain=2.0), Relu(), *((Dropout(dropout),) if dropout else ()))


def thin(filters: int, shrink: int) -> int:
    """A `shrink`-th of the filters, at least one: the same network in a size for tests and CPUs."""
    return max(1, filters // shrink)


def trivial(classes: int = 1001) -> Network:
    """Dense layers of 1 and 4096 units before the last: next to no arithmetic."""
    return (Flatten(), *dense_relu(1), *dense_relu(4096), Dense(classes))


def lenet(classes: int = 1001) -> Network:
    """TensorFlow's MNIST tutorial, after LeCun et al. 1998, for 28 pixels."""
    return (
        *conv_relu(32, 5),
        MaxPool(2, 2),
        *conv_relu(64, 5),
        MaxPool(2, 2),
        Flatten(),
        *dense_relu(512),
        Dense(classes),
    )


def five(
    pool: MaxPool,
    filters: tuple[int, ...],
    pads: Any,
    units: int,
    classes: int,
    shrink: int,
    dropout: float,
) -> Network:
    """Five convolutions and three dense layers, the first of `units`. pads: of the second."""
    f = [thin(each, shrink) for each in filters]
    network: Network = (*conv_relu(f[0], 11, 4, NO_PADS), pool, *conv_relu(f[1], 5, 1, pads), pool)
    network += (*conv_relu(f[2], 3), *conv_relu(f[3], 3), *conv_relu(f[4], 3), pool, Flatten())
    return (
        *network,
        *dense_relu(thin(units, shrink), dropout),
        *dense_relu(thin(4096, shrink), dropout),
        Dense(classes),
    )


def alexnet(classes: int = 1001, shrink: int = 1, dropout: float = 0.5) -> Network:
    """Five convolutions and three dense layers, for 227 pixels (224 with pads): "One weird trick"
    (arXiv:1404.5997), 384 in the fourth.
    """
    return five(MaxPool(3, 2), (64, 192, 384, 384, 256), "same", 4096, classes, shrink, dropout)


def alexnet_cifar(classes: int = 11, shrink: int = 1) -> Network:
    """Two convolutions and three dense layers, for 32 pixels: TensorFlow's first tutorial,
    normalised over channels in both layouts.
    """
    response = LocalResponseNorm(radius=4, bias=1.0, alpha=0.001 / 9, beta=0.75)
    filters = thin(64, shrink)
    return (
        *conv_relu(filters, 5),
        MaxPool(3, 2, "same"),
        response,
        *conv_relu(filters, 5),
        response,
        MaxPool(3, 2, "same"),
        Flatten(),
        *dense_relu(thin(384, shrink)),
        *dense_relu(thin(192, shrink)),
        Dense(classes),
    )


def overfeat(classes: int = 1001, shrink: int = 1, dropout: float = 0.5) -> Network:
    """The fast model of Sermanet et al. (arXiv:1312.6229), for 231 pixels."""
    return five(MaxPool(2, 2), (96, 256, 512, 1024, 1024), NO_PADS, 3072, classes, shrink, dropout)


VGG = {"vgg11": (1, 1, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
"""Convolutions of each stage: models A, D and E of the paper."""


def vgg(
    stages: tuple[int, ...], classes: int = 1001, shrink: int = 1, dropout: float = 0.5
) -> Network:
    """Simonyan and Zisserman (arXiv:1409.1556): 3x3 convolutions in stages; for 224 pixels."""
    network: Network = ()
    for count, filters in zip(stages, (64, 128, 256, 512, 512), strict=True):
        network += conv_relu(thin(filters, shrink), 3) * count + (MaxPool(2, 2),)
    dense = dense_relu(thin(4096, shrink), dropout)
    return (*network, Flatten(), *dense, *dense, Dense(classes))
