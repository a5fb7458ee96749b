"""A user's module for the engines: names, embeddings with rows from elsewhere, summed loss."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.spec.errors import JobError
from multigpu.spec.model import Model
from multigpu.workloads.own.batches import arrays_of_step, batches_of
from multigpu.workloads.own.description import PREFIX, Described, Table
from multigpu.workloads.own.job import Job, telling
from multigpu.workloads.own.loaded import Loaded, generator_of
from multigpu.workloads.own.modules import (
    copied,
    is_lazy,
    kind_for,
    uncompiled,
    without_dropout,
    without_sparse_gradients,
)
from multigpu.workloads.own.seeding import MADE, drawing_alike
from multigpu.workloads.own.structure import classes_now, put_together
from multigpu.workloads.tensors import of_kind

__all__ = ["Loaded", "generator_of"]  # as readers of batches find them

_controlled = False
_MADE: "WeakSet[nn.Module]" = WeakSet()  # that are in use


@contextmanager
def comparable(kind: torch.dtype) -> Iterator[None]:
    """Modules built inside drop nothing out and make tensors of this type."""
    global _controlled
    usual = torch.get_default_dtype()
    _controlled = True
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        _controlled = False
        torch.set_default_dtype(usual)


def own_module(job: Job, notes: list[str] | None = None) -> nn.Module:
    """The user's module, on the CPU, uncompiled, with all widths; `notes` say what is left out."""
    with drawing_alike(MADE):
        return _own_module(job, [] if notes is None else notes)


def _own_module(job: Job, notes: list[str]) -> nn.Module:
    with telling(f"model {job.title!r}", job.made_at), torch.device("cpu"):
        made = copied(job, job.model) if isinstance(job.model, nn.Module) else job.model()
    if not isinstance(made, nn.Module):
        raise JobError(
            f"model {job.title!r} gives a {type(made).__name__}, not an nn.Module ({job.made_at})"
        )
    if made in _MADE:
        raise JobError(
            f"model {job.title!r} gives the module that it has given before: let it make a new one"
            f" each time, or give that module itself ({job.made_at})"
        )
    _MADE.add(made)
    made = uncompiled(made, notes)
    if not made.training:
        made.train()
        notes.append("the model is given in evaluation mode: it is trained in training mode")
    elif still := [name for name, part in made.named_modules() if not part.training]:
        notes.append(f"{still[0]} is in evaluation mode, and stays in it")
    if is_lazy(made):
        structure, arrays = arrays_of_step(batches_of("torch", job, job.batch_size, 1, 0, 0), 0)
        first = put_together(structure, tensors_of(arrays, torch.get_default_dtype()))
        with torch.device("cpu"), torch.no_grad():
            output_of(job, made, first)  # from which lazy layers learn their widths
    for name, parameter in made.named_parameters():
        if parameter.device.type != "cpu":
            raise JobError(
                f"model {job.title!r} puts {name} on {parameter.device}: leave devices out of its"
                " making, each placement chooses them"
            )
    return made


def owner_of(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The part of a module that holds the parameter or buffer of this name, and its name there."""
    path, _, leaf = name.rpartition(".")
    return module.get_submodule(path), leaf


def output_of(job: Job, module: nn.Module, batch: Any) -> Any:
    """Apply the user's model to a batch; a JobError with their own line where it fails.

    Of a model that gives its own loss, a `training_step(batch, index)` as Lightning's modules have
    is called in place of forward.
    """
    inputs = batch if job.loss is None else job.pair(batch)[0]
    with telling(f"model {job.title!r}", job.made_at):
        if job.loss is None and callable(step := getattr(module, "training_step", None)):
            return step(batch, 0)
        if isinstance(inputs, Mapping):
            return module(**inputs)
        return module(*inputs) if isinstance(inputs, tuple | list) else module(inputs)


def own_loss(output: Any) -> Any:
    """The loss that a model gives itself: its output, or the `loss` in it."""
    if isinstance(output, Tensor):
        return output
    return output.get("loss") if isinstance(output, dict) else getattr(output, "loss", output)


def loss_of(job: Job, module: nn.Module, batch: Any) -> Tensor:
    """The user's loss on a batch; a JobError where it fails or is no scalar names the line."""
    output = output_of(job, module, batch)
    if job.loss is None:
        found = own_loss(output)
    else:
        if isinstance(job.loss, nn.Module):  # weights of classes, say
            place = next((each.device for each in module.parameters()), None)
            job.loss.to(place, torch.get_default_dtype())
        with telling("loss", job.made_at):
            found = job.loss(output, job.pair(batch)[1])
    if not isinstance(found, Tensor):
        raise JobError(
            f"the loss is a {type(found).__name__} where a tensor is due: give the mean over a"
            f" batch's samples ({job.made_at})"
        )
    if found.numel() != 1:
        raise JobError(
            f"the loss has the shape {list(found.shape)} where one number is due: give the mean"
            f" over a batch's samples ({job.made_at})"
        )
    return found.reshape(())


def tensors_of(arrays: list[np.ndarray], kind: torch.dtype) -> dict[str, Tensor]:
    """A batch's tensors by number, real and complex ones in this precision."""
    found = {str(index): torch.from_numpy(array) for index, array in enumerate(arrays)}
    return {name: of_kind(tensor, kind) for name, tensor in found.items()}


def ids_of(table: Table, batch: dict[str, Tensor]) -> Tensor:
    """The ids that a table is asked for, from a batch's tensors."""
    leaf = batch[table.leaf]
    if table.column is not None:
        return leaf[:, table.column]
    return leaf if table.stretch is None else leaf[:, slice(*table.stretch)]


class _Reached(torch.autograd.Function):
    """The loss, and a gradient of zero for these parameters, whatever the samples reach."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, *parameters: Tensor) -> Tensor:
        ctx.like = [(p.shape, p.dtype, p.device) for p in parameters]
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        zeros = [torch.zeros(shape, dtype=kind, device=at) for shape, kind, at in ctx.like]
        return gradients[0], *zeros


def late_gradient(name: str, gradient: Tensor) -> None:
    """Stop a Run in which a parameter that was taken for unused gets a gradient."""
    own = name.removeprefix(PREFIX)
    raise JobError(
        f"{own} got no gradient in any batch that was examined, and gets one in a later step: add"
        f" 0 * {own}.sum() to the loss, so that every batch has one, or freeze it with"
        " requires_grad_(False)"
    )


def all_parameters(
    part: nn.Module, fixed: list[tuple[nn.Module, str]], recurse: bool = True
) -> Iterator[Tensor]:
    """A module's parameters as its own code asks for them: those that are buffers here, too."""
    yield from nn.Module.parameters(part, recurse)
    inside = {*part.modules()} if recurse else {part}
    yield from (getattr(owner, leaf) for owner, leaf in fixed if owner in inside)


def switched(name: str, is_trained: bool, place: str) -> None:
    """Refuse, by a JobError, a job that changes while it trains which parameters are trained."""
    told = "unfreezes" if is_trained else "freezes"
    raise JobError(
        f"forward or the loss {told} {name.removeprefix(PREFIX)} (requires_grad) after the first"
        " step, and placements settle before it what is trained: compare what trains before and"
        f" after as two jobs ({place})"
    )


class OwnStep(nn.Module):
    """The sum of a shard's loss. `model` is the user's module; buffers of it are all that is not
    trained. values: what variables and buffers start with, or the file of it.
    """

    def __init__(self, job: Job, described: Described, values: Path | dict[str, Tensor]) -> None:
        super().__init__()
        self.job, self.described, self.values = job, described, values
        self.shard = job.shard
        self.classes = classes_now(described.structure)
        self.model = own_module(job)
        if _controlled:
            without_dropout(self.model)
        for name in described.fixed:
            owner, leaf = owner_of(self, name)
            value = owner._parameters.pop(leaf)
            assert value is not None
            owner.register_buffer(leaf, value.detach())
        self.fixed = [owner_of(self, name) for name in described.fixed]
        for part in self.model.modules() if self.fixed else ():
            part.__dict__["parameters"] = partial(all_parameters, part, self.fixed)
        self.rows: dict[str, Tensor] = {}
        self.left: set[str] = set()  # tables whose rows this pass has not asked for yet
        for name, table in described.tables.items():
            owner, _ = owner_of(self, name)
            assert isinstance(owner, nn.Embedding)
            owner.__dict__["forward"] = partial(self.looked_up, owner, name, table)
        without_sparse_gradients(self.model)

    @property
    def seldom(self) -> list[str]:
        """Parameters that some shards give no gradient."""
        return self.described.seldom

    def looked_up(self, owner: nn.Embedding, name: str, table: Table, ids: Tensor) -> Tensor:
        """Look rows up as an embedding layer does: rows brought here, or its own."""
        rows = self.rows.get(name)
        if rows is None:
            return F.embedding(ids, owner.weight, owner.padding_idx)
        if name not in self.left:
            raise JobError(
                f"{name.removeprefix(PREFIX)} is asked for rows twice in a step, and was once in"
                " all batches that were examined: ask once, for all of them"
            )
        self.left.remove(name)
        rows = rows.view(*ids.shape, rows.shape[-1])
        if table.padding is None:
            return rows
        return torch.where((ids == table.padding).unsqueeze(-1), rows.detach(), rows)

    def lookups(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: ids_of(table, batch).long().contiguous()
            for name, table in self.described.tables.items()
        }

    def compile_parts(self) -> None:
        self.model.compile(dynamic=False)

    def reset_buffers(self) -> None:
        """In real memory: bring first values of what is not trained, and tie names."""
        if isinstance(self.values, dict):
            stored = self.values
        else:
            stored = torch.load(self.values, weights_only=True, mmap=True)
        for name, buffer in list(self.named_buffers(remove_duplicate=False)):
            owner, leaf = owner_of(self, name)
            kind = kind_for(stored[name], torch.get_default_dtype())
            owner._buffers[leaf] = buffer.to(kind).copy_(stored[name])
        for name, first in self.described.tied.items():
            owner, leaf = owner_of(self, name)
            source, own = owner_of(self, first)
            if first in self.described.fixed:
                owner._parameters.pop(leaf, None)
                owner._buffers[leaf] = source._buffers[own]
            else:
                owner._parameters[leaf] = source._parameters[own]
        for part in self.modules():
            if isinstance(part, nn.RNNBase):  # keeps its weights a second time
                part._flat_weights = [
                    getattr(part, name, None) for name in part._flat_weights_names
                ]
        for name in self.described.idle:
            owner, leaf = owner_of(self, name)
            unused = owner._buffers[leaf]
            assert unused is not None
            unused.requires_grad_().register_hook(partial(late_gradient, name))

    def forward(self, batch: dict[str, Tensor], rows: dict[str, Tensor] | None = None) -> Tensor:
        self.rows = rows or {}
        self.left = set(self.rows)
        try:
            made = put_together(self.described.structure, batch, self.classes)
            found = loss_of(self.job, self.model, made)
        finally:
            self.rows = {}
        for name, (owner, leaf) in zip(self.described.fixed, self.fixed, strict=True):
            if getattr(owner, leaf).requires_grad and name not in self.described.idle:
                switched(name, True, self.job.made_at)
        if self.left:
            raise JobError(
                f"{min(self.left).removeprefix(PREFIX)} is asked for no rows in this step, and was"
                " in all batches that were examined: ask in every step"
            )
        if self.described.seldom:
            owners = [owner_of(self, name) for name in self.described.seldom]
            found = _Reached.apply(found, *(owner._parameters[leaf] for owner, leaf in owners))
        return (found if found.dtype == torch.float64 else found.float()) * len(batch["0"])


def build(model: Model) -> nn.Module:
    """The user's module for one replica, made on the CPU by its own code."""
    config = model.config
    with torch.device("cpu"):
        return OwnStep(config.described.load(config.folder), config.described, config.values)


def variables_of(module: nn.Module) -> tuple[dict[str, nn.Parameter], dict[str, str]]:
    """Parameters of a user's module by engines' names; further names of one -> its first."""
    first: dict[int, str] = {}
    found: dict[str, nn.Parameter] = {}
    tied: dict[str, str] = {}
    for name, parameter in module.named_parameters(
        prefix=PREFIX.rstrip("."), remove_duplicate=False
    ):
        if id(parameter) in first:
            tied[name] = first[id(parameter)]
        else:
            first[id(parameter)] = name
            found[name] = parameter
    return found, tied
