"""A user's own update: an optimizer, clipped gradients, a schedule of learning rates."""

import inspect
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from multigpu.spec.errors import JobError, Unsupported
from multigpu.spec.model import Model

if TYPE_CHECKING:
    from multigpu.workloads.own.job import Job

ELEMENTWISE = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
"""Optimizers that update a piece of a parameter as they update the whole."""


def job_of(model: Model) -> "Job | None":
    """Return the user's job where its update is its own; None: a rule of the study's it is."""
    described = getattr(model.config, "described", None)
    if described is None or not described.own_update:
        return None
    return described.load(model.config.folder)


def check_steps_alone(optimizer: torch.optim.Optimizer, place: str = "") -> None:
    """Refuse, by a JobError, an optimizer that asks for the loss again within its step."""
    told = inspect.signature(optimizer.step).parameters.values()
    if wanted := [each.name for each in told if each.default is inspect.Parameter.empty]:
        raise JobError(
            f"optimizer is a {type(optimizer).__name__}, whose step wants a {wanted[0]}: it"
            " evaluates the loss several times a step. Give one that steps from gradients alone"
            + place
        )


Pieces = Callable[[nn.Parameter], list[nn.Parameter]]
"""Gives what this process updates of a parameter: no piece of it, or those in its own stretch."""


def own_optimizer(job: "Job", parameters: list[nn.Parameter], pieces: Pieces | None = None) -> Any:
    """Return the job's own optimizer of these parameters, or None; JobError: it cannot be used.

    pieces: take the parameters' places once the job has put them into groups, which it may do by
        their shapes, their attributes or their order; None: this process updates whole ones.
    """
    if "optimizer" not in job.own_update:
        return None
    with job.telling("optimizer"):
        made = job.optimizer(parameters)
    kind = type(made).__name__
    if not isinstance(made, torch.optim.Optimizer):
        raise JobError(
            f"optimizer gives a {kind}: let it give a torch.optim.Optimizer ({job.made_at})"
        )
    check_steps_alone(made, f" ({job.made_at})")
    if pieces is None:
        return made
    if not isinstance(made, ELEMENTWISE):
        raise JobError(
            f"optimizer is a {kind}, which may look at a parameter as a whole, and this placement"
            " updates pieces of parameters: choose a placement that updates whole ones"
        )
    for group in made.param_groups:
        group["params"] = [piece for each in group["params"] for piece in pieces(each)]
    return made


def settle(
    optimizer: torch.optim.Optimizer, job: "Job", pieces: bool, captured: bool = False
) -> Callable[[], None] | None:
    """Have an optimizer clip gradients before each step, and follow the job's schedule after it.

    pieces: whether it knows pieces of parameters, whose squares add up over the processes.
    captured: whether steps are replays of a CUDA graph, which keeps all that the host decided. The
        learning rate then lies on the device, and what is returned steps the schedule: call it
        after each replay.

    Raises:
        Unsupported: the optimizer counts its steps, or reads its rate, on the host alone.
    """
    if captured and not count_on_device(optimizer):
        raise Unsupported(
            f"optimizer {type(optimizer).__name__} counts its steps or reads its rate on the host,"
            " and a captured step keeps these as they were: choose execution eager or compiled, or"
            " an optimizer of torch.optim that has `capturable`"
        )
    if (most := job.gradient_clip) is not None:
        optimizer.register_step_pre_hook(clipping(optimizer, most, pieces))
    if job.schedule is None:
        return None
    with job.telling("schedule"):
        follows = LambdaLR(optimizer, job.schedule)
    if captured:
        return scheduled_between_steps(optimizer, follows)
    optimizer.register_step_post_hook(lambda *_: follows.step())
    return None


def clipping(optimizer: torch.optim.Optimizer, most: float, pieces: bool) -> Callable[..., None]:
    """Return a hook that clips all gradients to this norm, which the host does not wait for."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]

    def clip(*_: Any) -> None:
        gradients = [each.grad for each in parameters if each.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if pieces and dist.is_initialized() and dist.get_world_size() > 1:
            square = norm.double().square()
            dist.all_reduce(square)
            norm = square.sqrt()
        if gradients:  # a process may hold no piece of any parameter
            scale = (most / (norm + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_(gradients, scale.to(gradients[0].dtype))

    return clip


def count_on_device(optimizer: torch.optim.Optimizer) -> bool:
    """Have an optimizer count its steps on the device, for a captured step; whether it can, and can
    read its rate there, too.
    """
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True
        # its fused form alone reads a rate from the device
        elif type(optimizer) is torch.optim.SGD:
            group["fused"], group["foreach"] = True, False
        else:
            return False
    return True


def rates_on(device: torch.device, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return each group's learning rate as a tensor on the device, of the one type (float32) that
    fused kernels read.
    """
    return [
        torch.tensor(float(group["lr"]), dtype=torch.float32, device=device)
        for group in optimizer.param_groups
    ]


def scheduled_between_steps(
    optimizer: torch.optim.Optimizer, follows: LambdaLR
) -> Callable[[], None]:
    """Have each step read its learning rates from the device; return what takes a step of the
    schedule and brings the next rates there.
    """
    groups = optimizer.param_groups
    device: Any = next((each.device for group in groups for each in group["params"]), None)
    rates = rates_on(device, optimizer)
    told = [group["lr"] for group in groups]

    def on_device(*_: Any) -> None:
        told[:] = [group["lr"] for group in groups]
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate

    def on_host(*_: Any) -> None:
        for group, value in zip(groups, told, strict=True):
            group["lr"] = value

    def follow() -> None:
        with warnings.catch_warnings():
            # the library does not see replays
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
            follows.step()
        for group, rate in zip(groups, rates, strict=True):
            rate.fill_(group["lr"])

    optimizer.register_step_pre_hook(on_device)
    optimizer.register_step_post_hook(on_host)
    return follow
