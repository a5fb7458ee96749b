"""A user's own update: an optimizer, clipped gradients, a schedule of learning rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from multigpu.spec.errors import JobError
from multigpu.spec.model import Model

if TYPE_CHECKING:
    from multigpu.workloads.own.job import Job

ELEMENTWISE = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
"""Optimizers that update a piece of a parameter as they update the whole."""


def job_of(model: Model) -> Job | None:
    """Return the user's job where its update is its own; None: a rule of the study's it is."""
    described = getattr(model.config, "described", None)
    if described is None or not described.own_update:
        return None
    job: Job = described.load(model.config.folder)
    return job


def own_optimizer(job: Job, parameters: list[nn.Parameter], pieces: bool) -> Any:
    """Return the job's own optimizer of these parameters, or None; JobError: it cannot be used."""
    if "optimizer" not in job.own_update:
        return None
    with job.telling("optimizer"):
        made = job.optimizer(parameters)
    kind = type(made).__name__
    if not isinstance(made, torch.optim.Optimizer):
        raise JobError(
            f"optimizer gives a {kind}: let it give a torch.optim.Optimizer ({job.made_at})"
        )
    if pieces and not isinstance(made, ELEMENTWISE):
        raise JobError(
            f"optimizer is a {kind}, which may look at a parameter as a whole, and this placement"
            " updates pieces of parameters: choose a placement that updates whole ones"
        )
    return made


def settle(optimizer: torch.optim.Optimizer, job: Job, pieces: bool) -> None:
    """Have an optimizer clip gradients before each step, and follow the job's schedule after it.

    pieces: whether it knows pieces of parameters, whose squares add up over the processes.
    """
    most = job.gradient_clip
    parameters = [each for group in optimizer.param_groups for each in group["params"]]

    def clip(*_: Any) -> None:
        gradients = [each.grad for each in parameters if each.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if pieces and dist.is_initialized() and dist.get_world_size() > 1:
            square = norm.double().square()
            dist.all_reduce(square)
            norm = square.sqrt()
        assert most is not None
        torch._foreach_mul_(gradients, (most / (norm + 1e-6)).clamp(max=1.0).to(gradients[0].dtype))

    if most is not None:
        optimizer.register_step_pre_hook(clip)
    if job.schedule is not None:
        with job.telling("schedule"):
            follows = LambdaLR(optimizer, job.schedule)
        optimizer.register_step_post_hook(lambda *_: follows.step())
