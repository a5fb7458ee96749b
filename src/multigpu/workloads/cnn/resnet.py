"""The residual networks of tf_cnn_benchmarks (He et al., arXiv:1512.03385). Two details are its
own: the pads of strided convolutions and of the first pooling, and that the CIFAR networks' first
    convolution has no ReLU.
"""

from typing import Literal

from multigpu.workloads.cnn import layers as L
from multigpu.workloads.cnn import network as net

NORM = L.BatchNorm(decay=0.9, epsilon=1e-5)


def conv_norm(
    filters: int,
    kernel: int,
    stride: int = 1,
    pads: net.Pads | Literal["same", "resnet"] = "resnet",
) -> net.Network:
    """A convolution without bias and its batch norm. Pads "resnet": (kernel - 1) / 2 a side, the
    odd one bottom right (SAME_RESNET).
    """
    if pads == "resnet":
        before, after = (kernel - 1) // 2, kernel // 2
        pads = (before, after, before, after)
    return (L.Convolution(kernel, stride, pads, filters), NORM)


def bottleneck(
    depth: int, narrow: int, stride: int, projected: bool, stride_in: Literal["1x1", "3x3"]
) -> net.Network:
    """1x1, 3x3 and 1x1 convolutions around a shortcut, a projection or itself. stride_in: which one
    moves: the first (v1) or 3x3 (v1.5).
    """
    first, second = (stride, 1) if stride_in == "1x1" else (1, stride)
    branch = (
        *conv_norm(narrow, 1, first),
        L.Relu(),
        *conv_norm(narrow, 3, second),
        L.Relu(),
        *conv_norm(depth, 1),
    )
    return (L.Residual(branch, conv_norm(depth, 1, stride) if projected else ()), L.Relu())


def basic(depth: int, before: int, stride: int) -> net.Network:
    """Two 3x3 convolutions around a shortcut without variables (option A: every stride-th pixel,
    channels of zeros), then ReLU.
    """
    branch = (*conv_norm(depth, 3, stride, "same"), L.Relu(), *conv_norm(depth, 3, 1, "same"))
    shortcut = (
        () if depth == before else (L.AveragePool(1, stride), L.PadChannels((depth - before) // 2))
    )
    return (L.Residual(branch, shortcut), L.Relu())


def imagenet(
    blocks: tuple[int, ...], stride_in: Literal["1x1", "3x3"], classes: int = 1001, width: int = 64
) -> net.Network:
    """ResNet-50, 101, 152: bottlenecks in four stages, from 4 x `width` channels, doubling."""
    network: net.Network = (*conv_norm(width, 7, 2), L.Relu(), L.MaxPool(3, 2, "same"))
    for stage, count in enumerate(blocks):
        narrow = width * 2**stage
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            network += bottleneck(4 * narrow, narrow, stride, block == 0, stride_in)
    return (*network, L.GlobalAveragePool(), L.Dense(classes))


def cifar(blocks: int, classes: int = 11, width: int = 16) -> net.Network:
    """ResNet-20, 32, ...: `blocks` basic blocks in each of three stages, width doubling."""
    network: net.Network = conv_norm(width, 3, 1, "same")
    before = width
    for stage in range(3):
        for block in range(blocks):
            network += basic(width * 2**stage, before, 2 if stage > 0 and block == 0 else 1)
            before = width * 2**stage
    return (*network, L.GlobalAveragePool(), L.Dense(classes))


def tiny(classes: int = 11) -> net.Network:
    """One block of every kind, and pads that differ by side, on 8 x 8 pixels, for tests."""
    return (
        *conv_norm(4, 3),
        L.Relu(),
        L.MaxPool(3, 2, "same"),
        *bottleneck(8, 2, 1, True, "1x1"),
        *bottleneck(8, 2, 1, False, "3x3"),
        *bottleneck(12, 3, 2, True, "3x3"),
        *basic(12, 12, 1),
        *basic(16, 12, 2),
        L.GlobalAveragePool(),
        L.Dense(classes),
    )
