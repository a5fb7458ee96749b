"""A small language for convolutional networks: a network is a tuple of layers, whose shapes,
variables and operations are derived. `steps` walks it and names each layer (its kind and a running
number within its own tuple: `conv1`, `residual1`, ...) for all builders.
Shapes are of one image, channels first: (channels, height, width), or (features,) once flattened.
"""

from dataclasses import dataclass
from math import prod, sqrt
from typing import ClassVar, Literal

from multigpu.spec.model import Init, Variable
from multigpu.workloads.cnn.network import (
    NO_PADS,
    Layer,
    Network,
    Pads,
    Shape,
    Trace,
    same_pads,
    trace,
)


@dataclass(frozen=True)
class Window(Layer):
    """A kernel, a side or (height, width), that moves by `stride` over a padded image."""

    kernel: int | tuple[int, int]
    stride: int = 1
    pads: Pads | Literal["same"] = NO_PADS

    @property
    def sides(self) -> tuple[int, int]:
        return (self.kernel, self.kernel) if isinstance(self.kernel, int) else self.kernel

    def pads_for(self, shape: Shape) -> Pads:
        if self.pads == "same":
            return same_pads((shape[1], shape[2]), self.kernel, self.stride)
        return self.pads

    def positions(self, shape: Shape) -> tuple[int, int]:
        top, bottom, left, right = self.pads_for(shape)
        height, width = shape[1] + top + bottom, shape[2] + left + right
        down, across = self.sides
        if height < down or width < across:
            raise ValueError(
                f"a {down} x {across} {self.kind} does not fit a padded image of {height} x {width}"
            )
        return (height - down) // self.stride + 1, (width - across) // self.stride + 1

    def output(self, shape: Shape) -> Shape:
        return shape[0], *self.positions(shape)


LEAST_PRODUCTS = 2
"""Products that a convolution's result takes at least for each pair of channels, in place of one
for each weight of its window: cuDNN's largest tile by Winograd's algorithm, 4 x 4 of 3 x 3, takes
    36 for 16 (Lavin and Gray 2016); by Fourier transforms 32 x 32 take 2.8 each.
"""


@dataclass(frozen=True)
class Convolution(Window):
    """Weights [filters, channels, height, width] start normal with variance `gain` / fan-in: 2 is
    He's, 1 tf_cnn_benchmarks'; biases 0.
    """

    kind: ClassVar[str] = "conv"
    # of the product, the gradient of what it reads and that of its weights
    touches: ClassVar[tuple[int, int]] = (3, 3)
    filters: int = 0
    bias: bool = False
    gain: float = 2.0

    def trace(self, shape: Shape, name: str) -> Trace:
        fan_in = shape[0] * prod(self.sides)
        output = (self.filters, *self.positions(shape))
        weight = Variable(
            f"{name}.weight",
            (self.filters, shape[0], *self.sides),
            "convolution",
            Init("normal", sqrt(self.gain / fan_in)),
        )
        bias = Variable(f"{name}.bias", (self.filters,), "bias", Init("constant", 0.0))
        flops = 2 * fan_in * prod(output)
        spared = (
            max(0, flops - flops * LEAST_PRODUCTS // prod(self.sides)) if self.stride == 1 else 0
        )
        variables = (weight, bias) if self.bias else (weight,)
        return Trace(output, variables, flops, self.passes(shape, output), spared)


@dataclass(frozen=True)
class MaxPool(Window):
    """The largest element of each window; padding never wins."""

    kind: ClassVar[str] = "max_pool"
    touches: ClassVar[tuple[int, int]] = (2, 3)  # backward reads where that was


@dataclass(frozen=True)
class AveragePool(Window):
    """The mean of each window; padding is not counted (TensorFlow's rule)."""

    kind: ClassVar[str] = "average_pool"


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Over batch and space, with shift (0) and scale (1; a ReLU with weights behind it can do
    without). decay: of running statistics.
    """

    kind: ClassVar[str] = "norm"
    decay: float = 0.9
    epsilon: float = 1e-5
    scale: bool = True

    def trace(self, shape: Shape, name: str) -> Trace:
        scale = Variable(f"{name}.weight", shape[:1], "norm", Init("constant", 1.0))
        shift = Variable(f"{name}.bias", shape[:1], "norm", Init("constant", 0.0))
        # forward: read for the statistics, read again, write; backward: read twice for two sums,
        # twice again, write
        return Trace(shape, (scale, shift) if self.scale else (shift,), passes=8 * prod(shape))


@dataclass(frozen=True)
class LocalResponseNorm(Layer):
    """x / (bias + alpha x sum of squares) ^ beta, over channels at most `radius` away (PyTorch
    divides alpha by 2 radius + 1).
    """

    kind: ClassVar[str] = "response_norm"
    # backward reads what came in, what went out and its gradient
    touches: ClassVar[tuple[int, int]] = (3, 3)
    radius: int
    bias: float
    alpha: float
    beta: float


@dataclass(frozen=True)
class Dropout(Layer):
    """In training, elements are zero with probability `rate`, others scaled up; every replica draws
    by itself: numbers do not compare.
    """

    kind: ClassVar[str] = "dropout"
    rate: float

    def trace(self, shape: Shape, name: str) -> Trace:
        if not 0 < self.rate < 1:
            raise ValueError(
                f"{name or self.kind}: a rate of {self.rate} is not between 0 and 1: leave the"
                " layer out instead of 0"
            )
        return super().trace(shape, name)


@dataclass(frozen=True)
class Relu(Layer):
    """max(x, 0)."""

    kind: ClassVar[str] = "relu"
    touches: ClassVar[tuple[int, int]] = (0, 0)


@dataclass(frozen=True)
class GlobalAveragePool(Layer):
    """The mean over space: (channels, height, width) -> (channels,)."""

    kind: ClassVar[str] = "mean"

    def output(self, shape: Shape) -> Shape:
        return shape[:1]


@dataclass(frozen=True)
class Flatten(Layer):
    """(channels, height, width) -> (features,), channels slowest whatever the memory layout."""

    kind: ClassVar[str] = "flatten"
    touches: ClassVar[tuple[int, int]] = (0, 0)

    def output(self, shape: Shape) -> Shape:
        return (prod(shape),)


@dataclass(frozen=True)
class PadChannels(Layer):
    """Channels of zeros, as many before as after: option A of the residual networks' paper."""

    kind: ClassVar[str] = "pad_channels"
    each_side: int = 0

    def output(self, shape: Shape) -> Shape:
        return shape[0] + 2 * self.each_side, *shape[1:]


@dataclass(frozen=True)
class Dense(Layer):
    """To `units` features, with a bias. Weights [units, features] start normal with variance `gain`
    / features (2 before a ReLU).
    """

    kind: ClassVar[str] = "dense"
    touches: ClassVar[tuple[int, int]] = Convolution.touches
    units: int = 0
    gain: float = 1.0

    def trace(self, shape: Shape, name: str) -> Trace:
        if len(shape) != 1:
            raise ValueError(
                f"{name}: a dense layer takes features, not an image of shape {shape}: flatten it"
                " first"
            )
        weight = Variable(
            f"{name}.weight",
            (self.units, shape[0]),
            "dense",
            Init("normal", sqrt(self.gain / shape[0])),
        )
        bias = Variable(f"{name}.bias", (self.units,), "bias", Init("constant", 0.0))
        return Trace(
            (self.units,),
            (weight, bias),
            2 * self.units * shape[0],
            self.passes(shape, (self.units,)),
        )


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
            raise ValueError(
                f"{name}: a branch of shape {branch.output} cannot be added to a shortcut of shape"
                f" {shortcut.output}"
            )
        # forward the sum reads the shortcut, backward the gradients of both ends of the block meet
        return branch + shortcut + Trace(branch.output, passes=prod(branch.output) + prod(shape))


@dataclass(frozen=True)
class Concat(Layer):
    """The channels of all branches, one after another; an empty branch is x itself."""

    kind: ClassVar[str] = "concat"
    branches: tuple[Network, ...] = ()

    def trace(self, shape: Shape, name: str) -> Trace:
        traces = [
            trace(branch, shape, f"{name}.branch{index}.")
            for index, branch in enumerate(self.branches, 1)
        ]
        sizes = {one.output[1:] for one in traces}
        if len(sizes) != 1:
            raise ValueError(
                f"{name}: branches of shapes {[one.output for one in traces]} cannot be"
                " concatenated"
            )
        return sum(traces, Trace(())) + Trace((sum(one.output[0] for one in traces), *sizes.pop()))
