"""The optimizer of a wrapped model: made over what this rank updates, clipped, scheduled."""

import numbers
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from multigpu.engines.torch.own_update import (
    ELEMENTWISE,
    check_steps_alone,
    count_on_device,
    rates_on,
)
from multigpu.engines.torch.variables import make_optimizer
from multigpu.user_model.wrap.placed import Placed, like, local


def describe(given: Any) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
    """The function parameters -> Optimizer that the user's argument means; else a ValueError."""
    if isinstance(given, torch.optim.Optimizer):
        name = type(given).__name__
        raise ValueError(
            f"optimizer is a {name} already made, over parameters that a placement replaces: give"
            f" its class, torch.optim.{name}, or a function, lambda parameters:"
            f" torch.optim.{name}(parameters, lr=...)"
        )
    if hasattr(given, "rate") and getattr(given, "name", None) in ("sgd", "adam", "adamw"):
        return lambda parameters: _from_description(given, parameters)
    if not callable(given):
        raise ValueError(
            f"optimizer={given!r} is no optimizer: give multigpu.SGD, Adam or AdamW, a class of"
            " torch.optim, or a function of the parameters that returns an Optimizer"
        )
    return given


def _from_description(given: Any, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    fused = all(each.is_cuda and each.is_floating_point() for each in parameters) or None
    return make_optimizer(given, parameters, fused=fused)


def made(given: Any, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer over these parameters; a ValueError where the function gives another thing."""
    optimizer = describe(given)(parameters)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(
            f"optimizer(parameters) gave a {type(optimizer).__name__}: let it return a"
            " torch.optim.Optimizer"
        )
    check_steps_alone(optimizer)
    known = {id(each) for each in parameters}
    for group in optimizer.param_groups:
        for each in group["params"]:
            if id(each) not in known:
                raise ValueError(
                    "optimizer(parameters) updates other tensors than the parameters it was given:"
                    " build it from its argument, not from the model"
                )
    return optimizer


class Update:
    """The update of a step: gradients clipped, the optimizer's step, values spread.

    optimizer: over `pieces`, by name. rates: each group's learning rate on the device, for a
    captured step, which reads it anew; empty otherwise.
    """

    def __init__(self, placed: Placed, given: Any, capture: bool) -> None:
        self.placed = placed
        self.clip = placed.settings.gradient_clip
        self.keep_gradients = capture
        targets = placed.targets
        self.pieces: dict[str, nn.Parameter] = {
            name: like(each, local(each.detach())) if isinstance(each, DTensor) else each
            for name, each in targets.items()
        }
        # groups may go by a parameter's place among all, of which this rank updates its own
        self.optimizer = made(given, list({**placed.trainable, **self.pieces}.values()))
        mine = set(map(id, self.pieces.values()))
        for group in self.optimizer.param_groups:
            group["params"] = [each for each in group["params"] if id(each) in mine]
        # an elementwise one updates a piece as a plain tensor, without DTensor's cost on the host
        if type(self.optimizer) not in ELEMENTWISE and any(
            isinstance(each, DTensor) for each in targets.values()
        ):
            self.pieces = targets
            self.optimizer = made(given, list(targets.values()))
        self.names = {id(each): name for name, each in self.pieces.items()}
        self.norm: Tensor | None = None
        self.rates: list[Tensor] = []
        if capture:
            self._make_capturable()
        updated = {id(each) for group in self.optimizer.param_groups for each in group["params"]}
        self.left_out = [name for name, each in self.pieces.items() if id(each) not in updated]

    def _make_capturable(self) -> None:
        """Keep what the update reads on the device; rates too, if a schedule changes them."""
        for group in self.optimizer.param_groups:
            group["lr"] = float(group["lr"])
        if count_on_device(self.optimizer) and self.placed.settings.schedule is not None:
            self.rates = rates_on(self.placed.group.device, self.optimizer)

    def forget_gradients(self) -> None:
        """Begin a step: zero gradients, kept where a captured step writes to them."""
        for parameter in self.placed.trainable.values():
            if not self.keep_gradients or not parameter.requires_grad:
                parameter.grad = None
        if self.keep_gradients:
            kept = [local(p.grad) for p in self.placed.trainable.values() if p.grad is not None]
            if kept:
                torch._foreach_zero_(kept)

    def set_rates(self) -> None:
        """Bring the groups' learning rates to the device, for a captured step to read."""
        for rate, group in zip(self.rates, self.optimizer.param_groups, strict=False):
            rate.fill_(float(group["lr"]))

    def apply(self) -> None:
        """Update from the gradients that the parameters have now."""
        self._hand_over()
        if self.clip is not None:
            self._clip(self.clip)
        groups = self.optimizer.param_groups
        told = [group["lr"] for group in groups]
        for rate, group in zip(self.rates, groups, strict=False):
            group["lr"] = rate
        try:
            self.optimizer.step()
        finally:
            for group, value in zip(groups, told, strict=True):
                group["lr"] = value
        self.placed.spread()

    def _hand_over(self) -> None:
        """Give pieces and masters the gradients of their parameters."""
        for name, piece in self.pieces.items():
            parameter = self.placed.trainable[name]
            if piece is parameter:
                continue
            if parameter.grad is None:
                piece.grad = None
            elif piece.dtype == parameter.dtype:
                piece.grad = local(parameter.grad)
            elif piece.grad is None:
                piece.grad = parameter.grad.to(piece.dtype)
            else:
                piece.grad.copy_(parameter.grad)

    def _clip(self, most: float) -> None:
        whole = not self.placed.divided
        source = self.placed.trainable if whole and not self.placed.masters else self.pieces
        gradients = [local(each.grad) for each in source.values() if each.grad is not None]
        device = self.placed.group.device
        norm = torch.zeros((), device=device)
        if gradients:
            norm = torch.nn.utils.get_total_norm(gradients)
        if not whole:
            square = norm.double().square()
            norm = self.placed.group.sum(square).sqrt()
        self.norm = norm
        scale = (most / (norm + 1e-6)).clamp(max=1.0)
        if gradients:
            torch._foreach_mul_(gradients, scale.to(gradients[0].dtype))

    def fixed(self) -> tuple[Any, ...]:
        """Return the groups' settings that a capture holds fixed: all but rates on the device."""
        return tuple(
            tuple(
                (name, value)
                for name, value in group.items()
                if name not in ("params", "param_names", "initial_lr")
                and (name != "lr" or not self.rates)
            )
            for group in self.optimizer.param_groups
        )

    def state_tensors(self) -> list[Tensor]:
        """The optimizer's states on this rank's device."""
        return [
            local(value)
            for state in self.optimizer.state.values()
            for value in state.values()
            if isinstance(value, Tensor) and local(value).device == self.placed.group.device
        ]

    def host_state(self) -> dict[str, float]:
        """States that the optimizer keeps on the host, which no captured step would change."""
        device = self.placed.group.device
        return {
            f"{self.names[id(parameter)]}.{name}": float(value)  # type: ignore[arg-type]
            for parameter, state in self.optimizer.state.items()
            for name, value in state.items()
            if (isinstance(value, numbers.Number) and not isinstance(value, complex))
            or (isinstance(value, Tensor) and value.device != device and value.numel() == 1)
        }


def scheduler_of(given: Any, optimizer: torch.optim.Optimizer) -> LRScheduler | None:
    """The schedule over the optimizer's learning rates: of a function of the step that gives a
    factor, or of a function of the optimizer that gives a scheduler; else a ValueError.
    """
    if given is None:
        return None
    failure = ""
    scheduler = None
    try:
        scheduler = given(optimizer)
    except Exception as error:  # a function of the step fails on an optimizer
        failure = str(error)
    if isinstance(scheduler, ReduceLROnPlateau):
        raise ValueError(
            "schedule gives a ReduceLROnPlateau, which needs a measure at each step: set"
            " trainer.optimizer.param_groups[...]['lr'] yourself"
        )
    if isinstance(scheduler, LRScheduler):
        return scheduler
    try:
        factor = given(0)
    except Exception as error:
        raise ValueError(
            f"schedule is neither a function of the step ({type(error).__name__}: {error}) nor one"
            f" of the optimizer ({failure}): give step -> factor, or optimizer -> scheduler"
        ) from error
    if not isinstance(factor, int | float):
        raise ValueError(
            f"schedule(0) gave {factor!r}: let it give the factor on the learning rate, or give"
            " a function of the optimizer that returns a scheduler of torch.optim.lr_scheduler"
        )
    return LambdaLR(optimizer, given)
