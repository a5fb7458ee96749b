"""`multigpu.wrap`: a module of one's own on several GPUs, in a plain training loop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.user_model.wrap.settings import Settings
from multigpu.user_model.wrap.trainer import ModelTrainer


def wrap(
    model: nn.Module,
    loss: Callable[[Any, Any], Tensor] | None,
    optimizer: Any,
    placement: str = "ddp",
    execution: str = "eager",
    *,
    precision: str = "fp32",
    gradient_clip: float | None = None,
    schedule: Callable[..., Any] | None = None,
    micro_steps: int = 1,
    recompute: bool = False,
    shard: Sequence[str | type[nn.Module] | nn.Module] | str | type[nn.Module] | None = None,
    reshard: bool = True,
    seed: int | None = None,
    count: Callable[[Any], int | Tensor] | None = None,
    warm_up: int = 12,
    check: bool = True,
    find_unused: bool = False,
    compile_options: Mapping[str, Any] | None = None,
    device: torch.device | str | None = None,
) -> ModelTrainer:
    """Put a model on the GPUs of all processes that torchrun started, ready to train.

    In one process it trains on one device. The module given is trained in place, from rank 0's
    values; it is not to be changed otherwise meanwhile. Steps are the same in every placement and
    form: gradients of the mean over the samples of all ranks.

    model: the module. loss: a function of (output, target) that gives the mean over the samples; or
        None where the model returns its loss (a scalar, or named `loss`).
    optimizer: `multigpu.SGD(...)`, `Adam`, `AdamW`; a class of `torch.optim`; or a function of the
        parameters that gives a `torch.optim.Optimizer`.
    placement: `ddp` (PyTorch's DistributedDataParallel), `zero1` (as ddp, each parameter updated by
        one rank alone, whose optimizer holds its states), `fsdp2` (PyTorch's fully_shard: a part of
        each parameter a rank), `one`.
    execution: `eager`; `compiled` (torch.compile, of each block under fsdp2); `captured` (after
        `warm_up` steps the whole step, update included, is one CUDA graph, which is replayed while
        the batch's structure, shapes and types, the modules' modes, the parameters' memory and the
        optimizer's settings are what they were, and else runs eagerly and says so);
        `compiled_captured`. What cannot be had goes on eagerly, and `notes` says why.
    precision: `fp32`, `tf32` (both set for the process), `bf16` (autocast; under fsdp2 gathered in
        bf16), `bf16_params` (parameters in bf16, updated as fp32 copies).
    gradient_clip: the largest norm of all gradients together. schedule: a function of the step that
        gives a factor on the learning rate, or of the optimizer that gives a scheduler of
        `torch.optim.lr_scheduler`; stepped at each step.
    micro_steps: parts that each batch is cut into, whose gradients add up and merge once.
    recompute: whether blocks keep their inputs alone and compute activations again.
    shard: the blocks, by name, class or module; by default the class of modules in `ModuleList`s
        and `Sequential`s that repeats and holds the most parameters. reshard: whether FSDP2 frees
        gathered parameters after the forward pass.
    seed: each step's draws (dropout) come from it, the step's number and the rank.
    count: a function of a (micro-)batch that gives the number of terms its loss is the mean of, a
        number or a tensor, where that is not the number of samples (tokens that are not padding).
    warm_up: eager steps before a capture. check: compare the first captured step with an eager one
        from the same state, kept in host memory. find_unused: as in DistributedDataParallel.
    compile_options: torch.compile's, `{"mode": "max-autotune-no-cudagraphs"}` say.
    device: by default the GPU of LOCAL_RANK, else the CPU.
    Raises a ValueError where an argument does not fit, with the reason and what to do.
    """
    given = dict(locals())
    settings = Settings(**{each.name: given[each.name] for each in fields(Settings)})
    return ModelTrainer(model, loss, optimizer, settings, device)


__all__ = ["ModelTrainer", "wrap"]
