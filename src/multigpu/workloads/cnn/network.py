"""What a layer of a convolutional network is: a network is a tuple of layers, whose shapes, variables and operations are derived.

`steps` walks it and gives each layer its name (its kind and a running number within its own tuple: `conv1`, `norm1`, `residual1`, ...), so
that builders of all frameworks agree on the names of variables. Shapes are of one image, channels first: (channels, height, width), or
(features,) once flattened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

from multigpu.workloads.base import Variable

Shape = tuple[int, ...]
Pads = tuple[int, int, int, int]
"""Rows and columns added at the (top, bottom, left, right)."""
NO_PADS: Pads = (0, 0, 0, 0)


@dataclass(frozen=True)
class Trace:
    """What follows from a layer, or a network, once the shape of its input is known.

    output: shape of its result.
    variables: in the order in which every framework holds them.
    flops: operations of the forward pass for one image, a multiply-add counted as two; of convolutions and dense layers
        only, as is customary (the rest is bound by memory).
    spared: operations of these that a library's fast convolutions need not do, at most (`spared_flops`).
    passes: numbers of one image that a training step must read from or write to memory at least, where each layer is a kernel forward,
        and backward a kernel for each gradient, which keep nothing of one another. ReLU is part of what stands before it, the sum of a
        residual block part of its last normalisation, and branches write where they are concatenated.
    """

    output: Shape
    variables: tuple[Variable, ...] = ()
    flops: int = 0
    passes: int = 0
    spared: int = 0

    def __add__(self, other: Trace) -> Trace:
        """Of this and then the other, or of both beside each other: the other's output, everything else added up."""
        variables, flops = self.variables + other.variables, self.flops + other.flops
        return Trace(other.output, variables, flops, self.passes + other.passes, self.spared + other.spared)


@dataclass(frozen=True)
class Layer:
    """One operation. `kind` begins its name. It has no variables and keeps shapes, unless it says otherwise.

    touches: how often a step reads or writes each number that goes in, and each that comes out (`Trace.passes`).
    """

    kind: ClassVar[str]
    touches: ClassVar[tuple[int, int]] = (2, 2)

    def trace(self, shape: Shape, name: str) -> Trace:
        """What follows for an input of `shape`, its variables named below `name`."""
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
    return sum((layer.trace(before, prefix + name) for name, layer, before in steps(network, shape)), Trace(shape))


def same_pads(size: tuple[int, int], kernel: int | tuple[int, int], stride: int) -> Pads:
    """TensorFlow's SAME: outputs = ceil(size / stride), an odd pad going to the bottom and the right."""
    pads: list[int] = []
    for length, side in zip(size, (kernel, kernel) if isinstance(kernel, int) else kernel, strict=True):
        total = max((-(-length // stride) - 1) * stride + side - length, 0)
        pads += (total // 2, total - total // 2)
    return (pads[0], pads[1], pads[2], pads[3])


@dataclass(frozen=True)
class Window(Layer):
    """What convolution and pooling share: a kernel, one side for a square or (height, width), that moves by `stride` over a
    padded image.
    """

    kernel: int | tuple[int, int]
    stride: int = 1
    pads: Pads | Literal["same"] = NO_PADS

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of the kernel."""
        return (self.kernel, self.kernel) if isinstance(self.kernel, int) else self.kernel

    def pads_for(self, shape: Shape) -> Pads:
        """The pads of every side for an input of this shape."""
        return same_pads((shape[1], shape[2]), self.kernel, self.stride) if self.pads == "same" else self.pads

    def positions(self, shape: Shape) -> tuple[int, int]:
        """How many times the kernel fits, downwards and across.

        Raises:
            ValueError: the padded image is smaller than the kernel.
        """
        top, bottom, left, right = self.pads_for(shape)
        height, width = shape[1] + top + bottom, shape[2] + left + right
        down, across = self.sides
        if height < down or width < across:
            raise ValueError(f"a {down} x {across} {self.kind} does not fit a padded image of {height} x {width}")
        return (height - down) // self.stride + 1, (width - across) // self.stride + 1

    def output(self, shape: Shape) -> Shape:
        return shape[0], *self.positions(shape)
