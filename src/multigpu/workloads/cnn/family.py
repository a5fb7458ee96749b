"""A made-up family of networks, one formula with four numbers, to ask what makes a model scale.

`family_d8_w64_s64_f50`: 8 convolutions of 3 x 3 in four stages of 64, 128, 256 and 512 filters,
each with batch norm and ReLU, images of 64 pixels a side, halved between stages; the mean over
space; a hidden dense layer so wide that dense layers hold 50% of the parameters (0: none); 100
classes. Convolutions then hold few parameters and nearly all operations, dense layers many
parameters and hardly an
operation: bytes of gradients and operations of a step can be moved apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from multigpu.workloads.cnn.layers import BatchNorm, Convolution, Dense, GlobalAveragePool, Relu
from multigpu.workloads.cnn.network import Network, trace
from multigpu.workloads.cnn.plain import dense_relu

STAGES = 4
CLASSES = 100


@dataclass(frozen=True)
class Member:
    """One of the family. depth: convolutions, a multiple of four. width: filters of the first
    stage. image_size: pixels a side.
    dense_percent: share of the parameters that dense layers are to hold; 0: no hidden layer.
    """

    depth: int
    width: int
    image_size: int
    dense_percent: int

    @property
    def name(self) -> str:
        return f"family_d{self.depth}_w{self.width}_s{self.image_size}_f{self.dense_percent}"

    def convolutions(self) -> Network:
        network: Network = ()
        for stage in range(STAGES):
            for number in range(self.depth // STAGES):
                stride = 2 if stage and number == 0 else 1
                network += (
                    Convolution(3, stride, "same", self.width * 2**stage),
                    BatchNorm(),
                    Relu(),
                )
        return (*network, GlobalAveragePool())

    @property
    def hidden(self) -> int:
        """Units of the hidden layer: u with (features + 1) u + (u + 1) classes = share / (1 -
        share) x the convolutions' parameters.
        """
        if not self.dense_percent:
            return 0
        held = sum(
            v.elements
            for v in trace(self.convolutions(), (3, self.image_size, self.image_size)).variables
        )
        features = self.width * 2 ** (STAGES - 1)
        wanted = self.dense_percent / (100 - self.dense_percent) * held
        return max(1, round((wanted - CLASSES) / (features + 1 + CLASSES)))

    def network(self) -> Network:
        return (
            *self.convolutions(),
            *(dense_relu(self.hidden) if self.hidden else ()),
            Dense(CLASSES),
        )


SWEEPS: Mapping[str, tuple[Member, ...]] = MappingProxyType(
    {
        "width": tuple(Member(8, width, 64, 0) for width in (8, 16, 32, 64, 128, 256)),
        "image_size": tuple(Member(8, 64, size, 0) for size in (32, 64, 128, 224)),
        "depth": tuple(Member(depth, 64, 64, 0) for depth in (4, 8, 16, 32)),
        "dense_percent": tuple(Member(8, 64, 64, share) for share in (0, 50, 90, 98)),
    }
)
"""By the number that changes; the others are those of `family_d8_w64_s64_f0`."""

SMALL = (Member(4, 4, 16, 0), Member(4, 8, 16, 0), Member(4, 4, 16, 80))
"""For CPUs and tests."""

MEMBERS: tuple[Member, ...] = tuple(
    dict.fromkeys((*(member for sweep in SWEEPS.values() for member in sweep), *SMALL))
)
