"""Settings of a wrapped model, checked before anything is built."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args
from typing import Literal as Choice

import torch
from torch import Tensor, nn

Placement = Choice["one", "ddp", "zero1", "fsdp2"]
Execution = Choice["eager", "compiled", "captured", "compiled_captured"]
Precision = Choice["fp32", "tf32", "bf16", "bf16_params"]


@dataclass(frozen=True)
class Settings:
    """All that `multigpu.wrap` was told beside model, loss and optimizer; see its docstring."""

    placement: str = "ddp"
    execution: str = "eager"
    precision: str = "fp32"
    gradient_clip: float | None = None
    schedule: Callable[..., Any] | None = None
    micro_steps: int = 1
    recompute: bool = False
    shard: Sequence[str | type[nn.Module] | nn.Module] | str | type[nn.Module] | None = None
    reshard: bool = True
    seed: int | None = None
    count: Callable[[Any], int | Tensor] | None = None
    warm_up: int = 12
    check: bool = True
    find_unused: bool = False
    compile_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        chosen("placement", self.placement, get_args(Placement))
        chosen("execution", self.execution, get_args(Execution))
        chosen("precision", self.precision, get_args(Precision))
        if self.gradient_clip is not None:
            require_positive("gradient_clip", self.gradient_clip, "the largest norm, or None")
        whole("micro_steps", self.micro_steps, 1)
        whole("warm_up", self.warm_up, 3)
        if self.seed is not None:
            whole("seed", self.seed, 0)
        for name in ("schedule", "count"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise ValueError(f"{name}={value!r} cannot be called: give a function, or None")
        for name in ("recompute", "reshard", "check", "find_unused"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ValueError(f"{name}={value!r} is neither True nor False: give one of them")

    @property
    def compiled(self) -> bool:
        """Whether torch.compile is asked for."""
        return "compiled" in self.execution

    @property
    def captured(self) -> bool:
        """Whether a CUDA graph of the step is asked for."""
        return "captured" in self.execution


def chosen(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise a ValueError unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown: give one of {', '.join(choices)}")


def whole(name: str, value: Any, least: int) -> None:
    """Raise a ValueError unless the value is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}={value!r} is not a whole number of {least} or more: give one")


def require_positive(name: str, value: Any, meaning: str) -> None:
    """Raise a ValueError unless the value is a positive finite number."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name}={value!r} is not a positive number: give {meaning}")


def use_precision(precision: str) -> None:
    """Set this process's rule for fp32 matrix products and convolutions: exact, or tf32."""
    allowed = precision != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def check_model(model: Any) -> None:
    """Raise a ValueError where the model cannot be trained, with the reason."""
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"model is a {type(model).__name__}, not a torch.nn.Module: give the module itself,"
            " already made"
        )
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ValueError(
                f"parameter {name!r} has no shape yet (a lazy module): run the model once on a"
                " batch before you wrap it"
            )
        if parameter.is_meta:
            raise ValueError(
                f"parameter {name!r} is on the meta device and has no values: make the model on"
                " the CPU, or give it values first"
            )
        if hasattr(parameter, "placements"):
            raise ValueError(
                f"parameter {name!r} is a DTensor already: give the model before it is sharded"
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(
            "no parameter of the model requires a gradient, so there is nothing to train: set"
            " requires_grad of those that shall learn"
        )
    if isinstance(model, torch.nn.parallel.DistributedDataParallel | nn.DataParallel):
        raise ValueError(
            f"model is a {type(model).__name__} already: give the module inside, model.module"
        )
