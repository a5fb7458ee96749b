"""The description of a model that everything but the frameworks' builders reads: variables, sizes,
update rule, and how it can be divided over devices.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

from multigpu.spec.run import Run
from multigpu.spec.stage_graph import Stage, StageGraph

Unit = Literal["words", "images", "reviews", "samples", "tokens"]
"""What throughput counts. A review: a row with both texts; a sample: a row of made-up input."""

LSTM_PASSES = 36
"""Times an LSTM cell's width that one position passes through memory at least. Forward its input
(1), the product with it (8), the gates kept for backward (4), cell and hidden state (2): 15.
Backward the gates, the cell state and the gradient of what went out (6), the gates' gradients,
written and read twice (12), the gradient of the input, and input and hidden state once more (3):
21.
"""


@dataclass(frozen=True)
class Init:
    """How a variable starts: uniform in [-scale, scale], normal with standard deviation `scale`, a
    constant, or its value in a file.
    """

    law: Literal["uniform", "normal", "constant", "stored"]
    scale: float
    file: str = ""


@dataclass(frozen=True)
class Variable:
    """A logical trainable variable, as the documents count them: one kernel an LSTM cell.
    `embedding`: looked up by row, [rows, width].
    flat: its gradient is zero but for rounding, as a bias before batch norm has it: it may stay
        where it starts.
    """

    name: str
    shape: tuple[int, ...]
    kind: Literal["embedding", "kernel", "bias", "projection", "convolution", "dense", "norm"]
    init: Init
    flat: bool = False

    @property
    def elements(self) -> int:
        return prod(self.shape)


def block_of(name: str) -> str:
    """Return the repeated block that a variable of this name belongs to: its name up to its first
    number; "" where it is in none.
    """
    parts = name.split(".")
    ends = [index for index, part in enumerate(parts[:-1], 1) if part.isdigit()]
    return ".".join(parts[: ends[0]]) if ends else ""


@dataclass(frozen=True)
class Optimizer:
    """The update rule. `sgd` with momentum: v <- m v + g, w <- w - rate v. `adamw`: its decay is
    not in the gradient.
    """

    name: Literal["sgd", "adam", "adamw"]
    rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    @property
    def slots(self) -> int:
        """Arrays of the variable's size that the rule keeps beside it."""
        return 2 if self.name != "sgd" else int(self.momentum > 0)


@dataclass(frozen=True)
class Exchange:
    """A collective among the devices that share one copy of a model. exact: statistics of the loss,
    float32 or better in any precision.
    elements: for each row and step, of what each device hands over (of an all_gather: all
        together).
    """

    kind: Literal["all_reduce", "all_gather", "reduce_scatter"]
    elements: int
    exact: bool = False


@dataclass(frozen=True)
class Splitting:
    """How a model's matrices are cut over devices. axes: variable -> the axis along which it is
    cut; others are whole on every device.
    exchanges: what one step then joins. equal: a size that must divide by the number of devices;
        None: parts may differ by one. equal_of: what it counts.
    """

    axes: Mapping[str, int]
    exchanges: tuple[Exchange, ...]
    equal: int | None = None
    equal_of: str = "hidden units"


@dataclass(frozen=True)
class Model:
    """One model of a workload, described once; the frameworks' builders read `config`, everything
    else reads the rest.

    forward_flops_per_unit: multiply-adds counted as two, forward pass, for one word, image or row
        (training takes about three times that).
    spared_flops_per_unit: of these at most, those that cuDNN's convolutions in fp32 need not do (by
        Winograd's algorithm or by Fourier's).
    memory_passes_per_unit: numbers of activations and their gradients that a training step must
        read from or write to memory for one of those at least, layer by layer as libraries compute
        (nothing of variables, which a batch of any size reads once).
    declare_sections: worked out when a placement that spreads layers asks. splitting: for those
        that cut matrices; None: not declared.
    context: the longest sequence that it can read; None: any, or none. at_length: the description
        of the same model over sequences of another length, where its operations depend on it.
    """

    name: str
    workload: str
    unit: Unit
    variables: tuple[Variable, ...]
    optimizer: Optimizer
    forward_flops_per_unit: float
    memory_passes_per_unit: float
    config: Any
    declare_sections: Callable[[], tuple[Stage, ...]] | None = None
    splitting: Splitting | None = None
    spared_flops_per_unit: float = 0.0
    context: int | None = None
    at_length: "Callable[[int], Model] | None" = None

    @cached_property
    def graph(self) -> StageGraph:
        """The sections over which its layers can be spread; none where the model declares none."""
        return StageGraph(self.declare_sections() if self.declare_sections else ())

    def at(self, sequence_length: int | None) -> "Model":
        """Describe this model over sequences of so many tokens (None: as many as it can read)."""
        if self.at_length is None or sequence_length is None:
            return self
        return self.at_length(sequence_length)

    @property
    def parameters(self) -> int:
        return sum(v.elements for v in self.variables)

    @property
    def parameter_bytes(self) -> int:
        return 4 * self.parameters


PLAIN_OPTIMIZERS = {
    "sgd": Optimizer("sgd", 0.1),
    "momentum": Optimizer("sgd", 0.1, momentum=0.9),
    "adam": Optimizer("adam", 1e-3),
}
"""Update rules by name, for Runs that ask for another: in one place, so that no twin drifts."""


def optimizer_of(run: Run, model: Model) -> Optimizer:
    """The Run's update rule: a plain one by name, or the workload's own."""
    return PLAIN_OPTIMIZERS.get(run.optimizer) or model.optimizer
