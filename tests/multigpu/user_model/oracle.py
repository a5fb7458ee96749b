"""Plain PyTorch, the judge of what is examined and of what placements train: the user's own module,
loss and optimizer in one process, in fp64, without any code of placements.
"""

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from multigpu.build import build_run
from multigpu.spec.model import Optimizer
from multigpu.spec.run import Run
from multigpu.workloads.own.batches import DrawnBatches, Streamed, batches_of
from multigpu.workloads.own.description import Described
from multigpu.workloads.own.job import Job
from multigpu.workloads.own.seeding import MADE, drawing_alike


@contextmanager
def default_type(kind: torch.dtype) -> Iterator[None]:
    """Tensors that a model makes for itself inside have this type."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


def cast(value: Any, kind: torch.dtype) -> Any:
    """Tensors (and arrays) of real or complex numbers in this precision, all others as they are."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        parts = {name: cast(part, kind) for name, part in value.items()}
        return parts if isinstance(value, dict) else type(value)(parts)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(cast(part, kind) for part in value))
    if isinstance(value, tuple | list):
        return type(value)(cast(part, kind) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
        return dataclasses.replace(
            value, **{name: cast(getattr(value, name), kind) for name in fields}
        )
    if isinstance(value, np.ndarray):
        value = np.ascontiguousarray(value.astype(value.dtype.newbyteorder("=")))
    tensor = torch.as_tensor(value)
    if tensor.is_floating_point():
        return tensor.to(kind)
    return tensor.to(torch.complex128) if tensor.is_complex() else tensor


def module_of(job: Job, kind: torch.dtype = torch.float64) -> nn.Module:
    """The user's module as the study seeds it, in this precision and with dropout at 0; one that
    torch.compile wrapped without it, and a lazy one with its widths.
    """
    with drawing_alike(MADE):
        made = copy.deepcopy(job.model) if isinstance(job.model, nn.Module) else job.model()
        made = getattr(made, "_orig_mod", made)
        if any(isinstance(p, nn.UninitializedParameter) for p in made.parameters()):
            batches = batches_of("torch", job, job.batch_size, 1, 0, 0)
            with torch.no_grad():
                output_of(job, made, cast(batches.batch(0), torch.float32))
    for part in made.modules():
        if isinstance(part, _DropoutNd):
            part.p = 0.0
        elif isinstance(part, nn.RNNBase | nn.MultiheadAttention):
            part.dropout = 0.0
        if isinstance(part, nn.Embedding | nn.EmbeddingBag):
            part.sparse = False
        part._compiled_call_impl = None
    with torch.no_grad():
        for value in [*made.parameters(), *made.buffers()]:
            value.data = cast(value.data, kind)
    return made if made.training else made.train()


def output_of(job: Job, module: nn.Module, batch: Any) -> Any:
    """What the module gives for a batch."""
    if job.loss is None and hasattr(module, "training_step"):
        return module.training_step(batch, 0)
    inputs = batch if job.loss is None else batch[0]
    if isinstance(inputs, Mapping):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, tuple | list) else module(inputs)


def loss_of(job: Job, module: nn.Module, batch: Any) -> Tensor:
    """The user's loss of a batch, 0-dim."""
    output = output_of(job, module, batch)
    if job.loss is None:
        loss = output["loss"] if isinstance(output, dict) else getattr(output, "loss", output)
    else:
        if isinstance(job.loss, nn.Module):
            job.loss.to(torch.get_default_dtype())
        loss = job.loss(output, batch[1])
    assert isinstance(loss, Tensor)
    return loss.reshape(())


def optimizer_of(rule: Optimizer, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """PyTorch's optimizer of the job's rule, or the job's own."""
    if callable(rule):
        return rule(parameters)
    if rule.name == "sgd":
        return torch.optim.SGD(
            parameters, rule.rate, momentum=rule.momentum, weight_decay=rule.weight_decay
        )
    kind = torch.optim.Adam if rule.name == "adam" else torch.optim.AdamW
    return kind(
        parameters,
        rule.rate,
        betas=(rule.beta1, rule.beta2),
        eps=rule.epsilon,
        weight_decay=rule.weight_decay,
    )


def joined(batches: list[Any]) -> Any:
    """The batch of all these batches' samples, one after another."""
    first = batches[0]
    if isinstance(first, dict):
        return {name: joined([batch[name] for batch in batches]) for name in first}
    if isinstance(first, tuple | list):
        return type(first)(joined(list(parts)) for parts in zip(*batches, strict=True))
    return torch.cat(batches)


def sources_of(
    job: Job, replicas: int, rows: int | None = None, seed: int = 0
) -> list[DrawnBatches | Streamed]:
    """Where each replica's batches come from, as in a Run of this seed."""
    size = rows or job.batch_size
    return [batches_of("torch", job, size, replicas, rank, seed) for rank in range(replicas)]


def run_of(job: Job, found: Described, **more: Any) -> Run:
    """A Run of the job under `ddp` on two CPU processes, which is examined and not timed."""
    return build_run(
        placement="ddp",
        devices=2,
        workload="own",
        model=found.name,
        inputs="own",
        batch_size=job.batch_size,
        device_type="cpu",
        framework="torch",
        warmup_steps=3,
        timed_steps=3,
        **more,
    )


def trained(
    job: Job,
    replicas: int,
    steps: int,
    rows: int | None = None,
    together: bool = False,
    kind: torch.dtype = torch.float64,
    seed: int = 0,
) -> tuple[dict[str, Tensor], list[float]]:
    """Train the user's module in this process.

    together: the global batch passes at once; else the replicas' batches pass one after another and
        their gradients are averaged, which is the same where the loss is a mean over samples and
        no layer looks at other samples. rows: of each replica's batch (None: the job's). seed: of
        the batches.

    Returns:
        Each parameter's value after `steps` steps by its own first name (without what torch.compile
        adds to it), and the global batch's mean loss of each step.
    """
    module = module_of(job, kind)
    optimizer = optimizer_of(job.optimizer, list(module.parameters()))
    sources = sources_of(job, replicas, rows, seed)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        batches = [cast(source.batch(step), kind) for source in sources]
        parts = [joined(batches)] if together else batches
        total = 0.0
        for part in parts:
            with torch.random.fork_rng(devices=[]), default_type(kind):
                torch.manual_seed(1)
                loss = loss_of(job, module, part) / len(parts)
                loss.backward()
            total += float(loss.detach())
        optimizer.step()
        losses.append(total)
    values = {
        name.replace("_orig_mod.", ""): value.detach().clone()
        for name, value in module.named_parameters()
    }
    return values, losses
