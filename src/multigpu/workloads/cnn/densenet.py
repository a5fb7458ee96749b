"""tf_cnn_benchmarks' DenseNets for CIFAR (Huang et al., arXiv:1608.06993: the plain form), with
their transitions put right.

As there, convolutions have biases, and a transition's has a ReLU behind it. A transition is meant
to keep the number of channels; there it leaves its own 12 filters as the count, the block adds 12,
and the transition then reads 24 whatever the block has gathered: 160 become 24. Networks so
narrowed have 357,491 and 2,217,411 trainable parameters; with running statistics and step counter
that is document 001's 364,772 and 2,259,652. Those described here have 1,021,083 and 6,983,163.
"""

from multigpu.workloads.cnn.layers import (
    AveragePool,
    BatchNorm,
    Concat,
    Convolution,
    Dense,
    GlobalAveragePool,
    Relu,
)
from multigpu.workloads.cnn.network import Network

NORM = BatchNorm(decay=0.9, epsilon=1e-5)


def cifar(
    layers: int, growth: int, classes: int = 11, first: int = 16, transition: int | None = None
) -> Network:
    """Three blocks of `layers` convolutions for 32 pixels, each adding `growth`. transition:
    channels passed on; None keeps the block's.
    """

    def conv(filters: int, kernel: int) -> Network:
        return (NORM, Relu(), Convolution(kernel, 1, "same", filters, bias=True))

    network: Network = (Convolution(3, 1, "same", first, bias=True),)
    channels = first
    for block in range(3):
        network += (Concat(((), conv(growth, 3))),) * layers
        channels += layers * growth
        if block < 2:
            channels = transition or channels
            network += (*conv(channels, 1), Relu(), AveragePool(2, 2))
    return (*network, NORM, Relu(), GlobalAveragePool(), Dense(classes))
