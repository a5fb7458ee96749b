"""tf_cnn_benchmarks' plain networks, of convolutions with bias, pooling and dense layers only: trivial, LeNet, OverFeat, VGG."""

from __future__ import annotations

from multigpu.workloads.cnn.blocks import conv_relu, dense_relu, thin
from multigpu.workloads.cnn.layers import NO_PADS, Dense, Flatten, MaxPool, Network


def trivial(classes: int = 1001) -> Network:
    """Two dense layers of 1 and 4096 units before the last: next to no arithmetic, so what is left is everything else."""
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


def overfeat(classes: int = 1001, shrink: int = 1, dropout: float = 0.5) -> Network:
    """The fast model of Sermanet et al. (arXiv:1312.6229), for 231 pixels."""
    f = [thin(filters, shrink) for filters in (96, 256, 512, 1024, 1024)]
    return (
        *conv_relu(f[0], 11, 4, NO_PADS),
        MaxPool(2, 2),
        *conv_relu(f[1], 5, 1, NO_PADS),
        MaxPool(2, 2),
        *conv_relu(f[2], 3),
        *conv_relu(f[3], 3),
        *conv_relu(f[4], 3),
        MaxPool(2, 2),
        Flatten(),
        *dense_relu(thin(3072, shrink), dropout),
        *dense_relu(thin(4096, shrink), dropout),
        Dense(classes),
    )


VGG = {"vgg11": (1, 1, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
"""Convolutions of each stage: models A, D and E of the paper."""


def vgg(stages: tuple[int, ...], classes: int = 1001, shrink: int = 1, dropout: float = 0.5) -> Network:
    """Simonyan and Zisserman (arXiv:1409.1556): 3x3 convolutions, halved after each stage; for 224 pixels."""
    network: Network = ()
    for count, filters in zip(stages, (64, 128, 256, 512, 512), strict=True):
        network += conv_relu(thin(filters, shrink), 3) * count + (MaxPool(2, 2),)
    dense = dense_relu(thin(4096, shrink), dropout)
    return (*network, Flatten(), *dense, *dense, Dense(classes))
