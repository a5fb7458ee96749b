"""The framework-free side of a workload: variables, sizes, optimiser, and how its inputs are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from multigpu.inputs.batch import Source
    from multigpu.run import Run


Unit = Literal["words", "images", "reviews"]
"""What throughput counts. A review is a row: a user, an item and the rating that the one gave the other, with both their texts."""


@dataclass(frozen=True)
class Init:
    """How a variable starts: uniform in [-scale, scale], normal with standard deviation `scale`, or a constant."""

    law: Literal["uniform", "normal", "constant"]
    scale: float


@dataclass(frozen=True)
class Variable:
    """A logical trainable variable, as the documents count them: one kernel an LSTM cell, whatever the framework holds.

    `embedding` variables are looked up by row (shape [rows, width]); every other kind is used whole.
    """

    name: str
    shape: tuple[int, ...]
    kind: Literal["embedding", "kernel", "bias", "projection", "convolution", "dense", "norm"]
    init: Init

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Optimizer:
    """The update rule. `adam` ignores momentum; `sgd` with momentum is v <- m v + g, w <- w - rate v (no dampening)."""

    name: Literal["sgd", "adam"]
    rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    @property
    def slots(self) -> int:
        """Arrays of the variable's size that the rule keeps beside it."""
        return 2 if self.name == "adam" else int(self.momentum > 0)


@dataclass(frozen=True)
class Model:
    """One model of a workload, described once; the frameworks' builders read `config`, everything else reads the rest.

    forward_flops_per_unit: multiply-adds counted as two, forward pass, for one word, image or row of reviews at the model's own size
        (training costs about three times that).
    """

    name: str
    workload: str
    unit: Unit
    variables: tuple[Variable, ...]
    optimizer: Optimizer
    forward_flops_per_unit: float
    config: Any

    @property
    def parameters(self) -> int:
        """Trainable parameters."""
        return sum(v.elements for v in self.variables)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the trainable parameters in float32."""
        return 4 * self.parameters


@dataclass(frozen=True)
class Workload:
    """A family of models with one kind of input. Each framework's builder lives beside it in `<framework>.py`."""

    name: str
    unit: Unit
    models: Mapping[str, Model]
    inputs: Mapping[str, Callable[[Run, Model], Source]]
