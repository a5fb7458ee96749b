"""tf_cnn_benchmarks' two AlexNets.

For ImageNet: Krizhevsky's "One weird trick" (arXiv:1404.5997), which has no response normalisation, but with 384 filters in the fourth
convolution. For CIFAR: the network of TensorFlow's first tutorial, after Krizhevsky's cuda-convnet.
"""

from __future__ import annotations

from multigpu.workloads.cnn.blocks import conv_relu, dense_relu, thin
from multigpu.workloads.cnn.layers import NO_PADS, Dense, Flatten, LocalResponseNorm, MaxPool, Network


def imagenet(classes: int = 1001, shrink: int = 1, dropout: float = 0.5) -> Network:
    """Five convolutions and three dense layers, for 227 pixels: an image of 224 with its pads in it."""
    f = [thin(filters, shrink) for filters in (64, 192, 384, 384, 256)]
    return (
        *conv_relu(f[0], 11, 4, NO_PADS),
        MaxPool(3, 2),
        *conv_relu(f[1], 5),
        MaxPool(3, 2),
        *conv_relu(f[2], 3),
        *conv_relu(f[3], 3),
        *conv_relu(f[4], 3),
        MaxPool(3, 2),
        Flatten(),
        *dense_relu(thin(4096, shrink), dropout),
        *dense_relu(thin(4096, shrink), dropout),
        Dense(classes),
    )


def cifar(classes: int = 11, shrink: int = 1) -> Network:
    """Two convolutions and three dense layers, for 32 pixels; no dropout.

    tf_cnn_benchmarks normalises over the last axis, which is the width of the image if channels come first: here it is channels in
    both layouts. It starts weights at its own deviations and some biases at 0.1: here every layer starts by its kind's law.
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
