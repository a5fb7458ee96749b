"""A small language for convolutional networks: layers as data, from which every framework's module, the variables, the
shapes and the operations are derived.

A network is a tuple of layers. `steps` walks it and gives each layer its name (its kind and a running number within its
own tuple: `conv1`, `norm1`, `residual1`, ...), so that builders of all frameworks agree on the names of variables.
Shapes are of one image, channels first: (channels, height, width), or (features,) once flattened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt
from typing import ClassVar, Literal

from multigpu.workloads.base import Init, Variable

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


@dataclass(frozen=True)
class Layer:
    """One operation. `kind` begins its name."""

    kind: ClassVar[str]

    def trace(self, shape: Shape, name: str) -> Trace:
        """What follows for an input of `shape`, its variables named below `name`."""
        raise NotImplementedError


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
    total = Trace(shape)
    for name, layer, before in steps(network, shape):
        one = layer.trace(before, prefix + name)
        flops, spared = total.flops + one.flops, total.spared + one.spared
        total = Trace(one.output, total.variables + one.variables, flops, total.passes + one.passes, spared)
    return total


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


def product_passes(before: Shape, after: Shape) -> int:
    """Of a layer that multiplies by weights: the product, the gradient of what it reads and that of its weights each touch both ends."""
    return 3 * (prod(before) + prod(after))


def pooling_passes(before: Shape, after: Shape) -> int:
    """Of a mean over windows: each end once forward and once backward."""
    return 2 * (prod(before) + prod(after))


LEAST_PRODUCTS = 2
"""Products that a convolution's result takes at least for each pair of channels, in place of one for each weight of its window.

cuDNN's largest tile by Winograd's algorithm, 4 x 4 results of 3 x 3 windows, takes 36 for 16 (Lavin and Gray 2016); by Fourier
transforms a tile of 32 x 32 takes about 2.8 a result, whatever the window.
"""


def spared_flops(flops: int, sides: tuple[int, int]) -> int:
    """Of a direct convolution's operations (stride 1) those that a fast one does not do, at most."""
    return max(0, flops - flops * LEAST_PRODUCTS // prod(sides))


@dataclass(frozen=True)
class Convolution(Window):
    """To `filters` channels, pads being zeros. Weights [filters, channels, height, width] start normal with variance
    `gain` / fan-in, biases at 0. 2 is He's law, for the ReLU that follows; 1 is tf_cnn_benchmarks' (cut off at two deviations there).
    """

    kind: ClassVar[str] = "conv"
    filters: int = 0
    bias: bool = False
    gain: float = 2.0

    def trace(self, shape: Shape, name: str) -> Trace:
        fan_in = shape[0] * prod(self.sides)
        output = (self.filters, *self.positions(shape))
        weight = Variable(f"{name}.weight", (self.filters, shape[0], *self.sides), "convolution", Init("normal", sqrt(self.gain / fan_in)))
        bias = Variable(f"{name}.bias", (self.filters,), "bias", Init("constant", 0.0))
        flops = 2 * fan_in * prod(output)
        spared = spared_flops(flops, self.sides) if self.stride == 1 else 0
        return Trace(output, (weight, bias) if self.bias else (weight,), flops, product_passes(shape, output), spared)


@dataclass(frozen=True)
class MaxPool(Window):
    """The largest element of each window; padding never wins. Backward reads where that was."""

    kind: ClassVar[str] = "max_pool"

    def trace(self, shape: Shape, name: str) -> Trace:
        output = (shape[0], *self.positions(shape))
        return Trace(output, passes=pooling_passes(shape, output) + prod(output))


@dataclass(frozen=True)
class AveragePool(Window):
    """The mean of each window; padding is not counted (TensorFlow's rule)."""

    kind: ClassVar[str] = "average_pool"

    def trace(self, shape: Shape, name: str) -> Trace:
        output = (shape[0], *self.positions(shape))
        return Trace(output, passes=pooling_passes(shape, output))


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Normalised over batch and space, with scale (starts at 1) and shift (0).

    decay: of the running statistics: running <- decay x running + (1 - decay) x batch.
    scale: whether there is a scale; a ReLU with weights behind it can do without, as the Inception networks do.
    """

    kind: ClassVar[str] = "norm"
    decay: float = 0.9
    epsilon: float = 1e-5
    scale: bool = True

    def trace(self, shape: Shape, name: str) -> Trace:
        scale = Variable(f"{name}.weight", shape[:1], "norm", Init("constant", 1.0))
        shift = Variable(f"{name}.bias", shape[:1], "norm", Init("constant", 0.0))
        # forward: read for the statistics, read again, write; backward: read twice for two sums, twice again, write
        return Trace(shape, (scale, shift) if self.scale else (shift,), passes=8 * prod(shape))


@dataclass(frozen=True)
class LocalResponseNorm(Layer):
    """x / (bias + alpha x sum of squares) ^ beta, the sum over the channels at most `radius` away (TensorFlow's rule; PyTorch's
    alpha is divided by the 2 radius + 1 channels).
    """

    kind: ClassVar[str] = "response_norm"
    radius: int
    bias: float
    alpha: float
    beta: float

    def trace(self, shape: Shape, name: str) -> Trace:
        return Trace(shape, passes=6 * prod(shape))  # backward reads what came in, what went out and its gradient


@dataclass(frozen=True)
class Dropout(Layer):
    """In training, each element is zero with probability `rate`, the others are divided by 1 - rate.

    Every replica draws masks from its framework's own generator, as tf_cnn_benchmarks does. So with dropout a step costs what
    it costs there, but placements and frameworks agree in distribution only: whatever compares numbers uses networks without.
    """

    kind: ClassVar[str] = "dropout"
    rate: float

    def trace(self, shape: Shape, name: str) -> Trace:
        if not 0 < self.rate < 1:
            raise ValueError(f"{name or self.kind}: a rate of {self.rate} is not between 0 and 1: leave the layer out instead of 0")
        return Trace(shape, passes=pooling_passes(shape, shape))


@dataclass(frozen=True)
class Relu(Layer):
    """max(x, 0)."""

    kind: ClassVar[str] = "relu"

    def trace(self, shape: Shape, name: str) -> Trace:
        return Trace(shape)


@dataclass(frozen=True)
class GlobalAveragePool(Layer):
    """The mean over space: (channels, height, width) -> (channels,)."""

    kind: ClassVar[str] = "mean"

    def trace(self, shape: Shape, name: str) -> Trace:
        return Trace(shape[:1], passes=pooling_passes(shape, shape[:1]))


@dataclass(frozen=True)
class Flatten(Layer):
    """(channels, height, width) -> (features,), channels slowest whatever the memory layout."""

    kind: ClassVar[str] = "flatten"

    def trace(self, shape: Shape, name: str) -> Trace:
        return Trace((prod(shape),))


@dataclass(frozen=True)
class PadChannels(Layer):
    """Channels of zeros, as many before as after: option A of the residual networks' paper, which has no variables."""

    kind: ClassVar[str] = "pad_channels"
    each_side: int = 0

    def trace(self, shape: Shape, name: str) -> Trace:
        output = (shape[0] + 2 * self.each_side, *shape[1:])
        return Trace(output, passes=pooling_passes(shape, output))


@dataclass(frozen=True)
class Dense(Layer):
    """To `units` features, with a bias. Weights [units, features] start normal with variance `gain` / features:
    1 before a softmax, 2 before a ReLU.
    """

    kind: ClassVar[str] = "dense"
    units: int = 0
    gain: float = 1.0

    def trace(self, shape: Shape, name: str) -> Trace:
        if len(shape) != 1:
            raise ValueError(f"{name}: a dense layer takes features, not an image of shape {shape}: flatten it first")
        weight = Variable(f"{name}.weight", (self.units, shape[0]), "dense", Init("normal", sqrt(self.gain / shape[0])))
        bias = Variable(f"{name}.bias", (self.units,), "bias", Init("constant", 0.0))
        return Trace((self.units,), (weight, bias), 2 * self.units * shape[0], product_passes(shape, (self.units,)))


@dataclass(frozen=True)
class Residual(Layer):
    """branch(x) + shortcut(x); an empty shortcut is x itself."""

    kind: ClassVar[str] = "residual"
    branch: Network = ()
    shortcut: Network = ()

    def trace(self, shape: Shape, name: str) -> Trace:
        branch = trace(self.branch, shape, f"{name}.branch.")
        shortcut = trace(self.shortcut, shape, f"{name}.shortcut.")
        if branch.output != shortcut.output:
            raise ValueError(f"{name}: a branch of shape {branch.output} cannot be added to a shortcut of shape {shortcut.output}")
        # forward the sum reads the shortcut, backward the gradients of both ends of the block meet
        passes = branch.passes + shortcut.passes + prod(branch.output) + prod(shape)
        flops, spared = branch.flops + shortcut.flops, branch.spared + shortcut.spared
        return Trace(branch.output, branch.variables + shortcut.variables, flops, passes, spared)


@dataclass(frozen=True)
class Concat(Layer):
    """The channels of all branches, one after another; an empty branch is x itself."""

    kind: ClassVar[str] = "concat"
    branches: tuple[Network, ...] = ()

    def trace(self, shape: Shape, name: str) -> Trace:
        traces = [trace(branch, shape, f"{name}.branch{index}.") for index, branch in enumerate(self.branches, 1)]
        sizes = {one.output[1:] for one in traces}
        if len(sizes) != 1:
            raise ValueError(f"{name}: branches of shapes {[one.output for one in traces]} cannot be concatenated")
        output = (sum(one.output[0] for one in traces), *sizes.pop())
        variables = tuple(variable for one in traces for variable in one.variables)
        flops, passes, spared = (sum(getattr(one, name) for one in traces) for name in ("flops", "passes", "spared"))
        return Trace(output, variables, flops, passes, spared)
