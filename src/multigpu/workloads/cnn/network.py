"""Trace shapes and counts through a network of layers."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from multigpu.spec.model import Variable

Shape = tuple[int, ...]

Pads = tuple[int, int, int, int]
"""Rows and columns added at the (top, bottom, left, right)."""

NO_PADS: Pads = (0, 0, 0, 0)


@dataclass(frozen=True)
class Trace:
    """Shapes and counts of a layer, or a network, once the shape of its input is known. flops,
    spared: as `Model`'s, of one image, of convolutions and dense layers only, as is customary.
        passes: its `memory_passes_per_unit`, a kernel a layer forward and one a gradient. ReLU is
        part of what stands before it, the sum of a residual block of its last normalisation, and
        branches write where they are concatenated.
    """

    output: Shape
    variables: tuple[Variable, ...] = ()
    flops: int = 0
    passes: int = 0
    spared: int = 0

    def __add__(self, other: "Trace") -> "Trace":
        """Of this and then the other, or of both beside each other."""
        variables, flops = self.variables + other.variables, self.flops + other.flops
        return Trace(
            other.output, variables, flops, self.passes + other.passes, self.spared + other.spared
        )


@dataclass(frozen=True)
class Layer:
    """One operation, which has no variables and keeps shapes, unless it says otherwise. `kind`
    begins its name.
    touches: how often a step reads or writes each number that goes in, and each that comes out
        (`Trace.passes`).
    """

    kind: ClassVar[str]
    touches: ClassVar[tuple[int, int]] = (2, 2)

    def trace(self, shape: Shape, name: str) -> Trace:
        output = self.output(shape)
        return Trace(output, passes=self.passes(shape, output))

    def passes(self, before: Shape, after: Shape) -> int:
        return self.touches[0] * prod(before) + self.touches[1] * prod(after)

    def output(self, shape: Shape) -> Shape:
        return shape


Network = tuple[Layer, ...]


def steps(network: Network, shape: Shape) -> Iterator[tuple[str, Layer, Shape]]:
    """Each layer with its name and the shape of its input."""
    counts: Counter[str] = Counter()
    for layer in network:
        counts[layer.kind] += 1
        yield f"{layer.kind}{counts[layer.kind]}", layer, shape
        shape = layer.trace(shape, "").output


def trace(network: Network, shape: Shape, prefix: str = "") -> Trace:
    """The traces of all layers in one; an empty network passes its input on."""
    return sum(
        (layer.trace(before, prefix + name) for name, layer, before in steps(network, shape)),
        Trace(shape),
    )


def same_pads(size: tuple[int, int], kernel: int | tuple[int, int], stride: int) -> Pads:
    """TensorFlow's SAME: ceil(size / stride) outputs, an odd pad at the bottom and right."""
    pads: list[int] = []
    for length, side in zip(
        size, (kernel, kernel) if isinstance(kernel, int) else kernel, strict=True
    ):
        total = max((-(-length // stride) - 1) * stride + side - length, 0)
        pads += (total // 2, total - total // 2)
    return (pads[0], pads[1], pads[2], pads[3])
