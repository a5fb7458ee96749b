"""What a user says of a training job of their own. Imports no framework."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from multigpu.workloads.base import Optimizer

Precision = Literal["fp32", "tf32", "bf16"]


def SGD(rate: float, momentum: float = 0.0, weight_decay: float = 0.0) -> Optimizer:
    """Stochastic gradient descent, as `torch.optim.SGD`."""
    return Optimizer("sgd", rate, momentum, weight_decay)


def Adam(rate: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0.0) -> Optimizer:
    """As `torch.optim.Adam`."""
    return Optimizer("adam", rate, 0.0, weight_decay, beta1, beta2, epsilon)


def AdamW(rate: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0.01) -> Optimizer:
    """As `torch.optim.AdamW`, whose decay is no part of the gradient."""
    return Optimizer("adamw", rate, 0.0, weight_decay, beta1, beta2, epsilon)


@dataclass(frozen=True, eq=False)
class Job:
    """A model of one's own, what it reads and how it learns.

    model: a class or function that makes the `nn.Module` or the `keras.Model` (on TensorFlow), or such a model, which is copied.
    batch: `batch(n, generator)` gives (inputs, target) of n samples, drawn from the generator (a `torch.Generator`, or numpy's for Keras)
        and nothing else; or a DataLoader; or, for Keras, a `tf.data.Dataset` of batches of any size. The first axis of every tensor counts
        samples. Inputs are a tensor, a tuple (an `nn.Module`'s arguments) or a dict (named ones); Keras takes each as its one input.
    loss: the mean over a batch's samples, `loss(output, target)`; for Keras, as there, `loss(target, output)`, whose values are averaged.
        None: the model itself gives the loss of all that a batch holds.
    optimizer: of `SGD`, `Adam` or `AdamW` of this package.
    batch_size: samples of each device.
    name: in Records and tables; "": that of the model.

    Raises:
        ValueError: what was given is none of these; the sentence says what to give.
    """

    model: Any
    batch: Any
    loss: Callable[[Any, Any], Any] | None = None
    optimizer: Optimizer = field(default_factory=lambda: SGD(0.01))
    batch_size: int = 32
    precision: Precision = "fp32"
    name: str = ""
    made_at: str = field(init=False, default="")

    def __post_init__(self) -> None:
        caller = sys._getframe(2)  # behind the `__init__` that a dataclass has
        object.__setattr__(self, "made_at", f"{Path(caller.f_code.co_filename).name}, line {caller.f_lineno}")
        if not callable(self.model):
            raise ValueError(f"model = {self.model!r}: give a class, a function without arguments that makes the model, or a model")
        if not (callable(self.batch) or hasattr(self.batch, "__iter__")):
            raise ValueError(f"batch = {self.batch!r}: give a function batch(n, generator), a DataLoader or a tf.data.Dataset")
        if self.loss is not None and not callable(self.loss):
            raise ValueError(f"loss = {self.loss!r}: give a function loss(output, target), or None where the model gives its loss")
        if not isinstance(self.optimizer, Optimizer):
            raise ValueError(f"optimizer = {self.optimizer!r}: describe it with multigpu.SGD, multigpu.Adam or multigpu.AdamW")
        if not isinstance(self.batch_size, int) or isinstance(self.batch_size, bool) or self.batch_size < 1:
            raise ValueError(f"batch_size = {self.batch_size!r}: give the samples of each device, 1 or more")
        if self.precision not in get_args(Precision):
            raise ValueError(f"precision = {self.precision!r}: choose {', '.join(get_args(Precision))}")

    @property
    def title(self) -> str:
        """Its name, or the model's."""
        return self.name or getattr(self.model, "__name__", type(self.model).__name__).strip("<>")
