"""A user's module as the engines take it: parameters under its own names, embeddings whose rows may
come from elsewhere, a summed loss.
"""

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.data import DataLoader

from multigpu.workloads.base import Model
from multigpu.workloads.own.batches import Streamed, put_together
from multigpu.workloads.own.description import PREFIX, Described, Table
from multigpu.workloads.own.job import Job, JobError, telling

_controlled = False


@contextmanager
def comparable(kind: torch.dtype) -> Iterator[None]:
    """Modules built inside drop nothing out, and tensors that a model makes for itself have this
    type: two of them compute the same.
    """
    global _controlled
    usual = torch.get_default_dtype()
    _controlled = True
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        _controlled = False
        torch.set_default_dtype(usual)


def without_dropout(module: nn.Module) -> None:
    """Set every dropout of the library's layers to 0."""
    for part in module.modules():
        if isinstance(part, _DropoutNd):
            part.p = 0.0
        elif isinstance(part, nn.RNNBase | nn.MultiheadAttention):
            part.dropout = 0.0


def own_module(job: Job) -> nn.Module:
    """The user's module, on the CPU."""
    with telling(f"model {job.title!r}", job.made_at), torch.device("cpu"):
        made = copy.deepcopy(job.model) if isinstance(job.model, nn.Module) else job.model()
    if not isinstance(made, nn.Module):
        raise JobError(
            f"model {job.title!r} gives a {type(made).__name__}, not an nn.Module ({job.made_at})"
        )
    for name, parameter in made.named_parameters():
        if parameter.device.type != "cpu":
            raise JobError(
                f"model {job.title!r} puts {name} on {parameter.device}: leave devices out of its"
                " making, each placement chooses them"
            )
    return made.train()


def owner_of(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The part of a module that holds the parameter or buffer of this name, and its name there."""
    path, _, leaf = name.rpartition(".")
    return module.get_submodule(path), leaf


def loss_of(job: Job, module: nn.Module, batch: Any) -> Tensor:
    """What the user's model and loss make of a batch; a JobError with their own line where they
    fail or give no scalar.
    """
    inputs, target = (batch, None) if job.loss is None else job.pair(batch)
    with telling(f"model {job.title!r}", job.made_at):
        found = (
            module(**inputs)
            if isinstance(inputs, dict)
            else module(*inputs)
            if isinstance(inputs, tuple)
            else module(inputs)
        )
    if job.loss is not None:
        with telling("loss", job.made_at):
            found = job.loss(found, target)
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
    """A batch's tensors by number, which share its memory; those of real numbers have this type."""
    found = {str(index): torch.from_numpy(array) for index, array in enumerate(arrays)}
    return {
        name: tensor.to(kind) if tensor.is_floating_point() else tensor
        for name, tensor in found.items()
    }


def ids_of(table: Table, batch: dict[str, Tensor]) -> Tensor:
    """The ids that a table is asked for, from a batch's tensors."""
    leaf = batch[table.leaf]
    if table.column is not None:
        return leaf[:, table.column]
    return leaf if table.stretch is None else leaf[:, slice(*table.stretch)]


class OwnStep(nn.Module):
    """The sum of a shard's loss. `model` is the user's module; buffers of it are all that is not
    trained.
    """

    def __init__(self, job: Job, described: Described, values: Path) -> None:
        super().__init__()
        self.job, self.described, self.values = job, described, values
        self.model = own_module(job)
        if _controlled:
            without_dropout(self.model)
        for name in described.fixed:
            owner, leaf = owner_of(self, name)
            value = owner._parameters.pop(leaf)
            assert value is not None
            owner.register_buffer(leaf, value.detach())
        self.rows: dict[str, Tensor] = {}
        for name, table in described.tables.items():
            owner, _ = owner_of(self, name)
            assert isinstance(owner, nn.Embedding)
            owner.__dict__["forward"] = partial(self.looked_up, owner, name, table)
        for part in self.modules():
            if isinstance(part, nn.Embedding):
                part.sparse = False  # gradients travel and are merged as arrays

    def looked_up(self, owner: nn.Embedding, name: str, table: Table, ids: Tensor) -> Tensor:
        """What an embedding layer gives: rows that were brought here, or of its own table."""
        rows = self.rows.get(name)
        if rows is None:
            return F.embedding(ids, owner.weight, owner.padding_idx)
        rows = rows.view(*ids.shape, rows.shape[-1])
        return (
            rows
            if table.padding is None
            else torch.where((ids == table.padding).unsqueeze(-1), rows.detach(), rows)
        )

    def lookups(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: ids_of(table, batch).long().contiguous()
            for name, table in self.described.tables.items()
        }

    def compile_parts(self) -> None:
        self.model.compile(dynamic=False)

    def reset_buffers(self) -> None:
        """Once all memory is real: what is not trained starts as the user's module did, and names
        of one parameter mean one.
        """
        stored = torch.load(self.values, weights_only=True, mmap=True)
        for name, buffer in self.named_buffers(remove_duplicate=False):
            buffer.copy_(stored[name])
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

    def forward(self, batch: dict[str, Tensor], rows: dict[str, Tensor] | None = None) -> Tensor:
        self.rows = rows or {}
        try:
            found = loss_of(self.job, self.model, put_together(self.described.structure, batch))
        finally:
            self.rows = {}
        return (found if found.dtype == torch.float64 else found.float()) * len(batch["0"])


def build(model: Model) -> nn.Module:
    """The user's module for one replica. Its own code makes it on the CPU, since that may read or
    compute what the meta device has not.
    """
    config = model.config
    with torch.device("cpu"):
        return OwnStep(config.described.load(config.folder), config.described, config.values)


def variables_of(module: nn.Module) -> tuple[dict[str, nn.Parameter], dict[str, str]]:
    """The parameters of a user's module by the names that engines know, and of further names of one
    the first.
    """
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


def generator_of(seed: int) -> torch.Generator:
    """What a user's function draws from."""
    return torch.Generator().manual_seed(seed)


class Loaded(Streamed):
    """Samples of a DataLoader's dataset in an order of the seed's own, or what an iterable gives,
    to each replica its own batches.
    """

    def __init__(self, source: Any, rows: int, replicas: int, rank: int, seed: int) -> None:
        super().__init__(source, rows, replicas, rank, seed)
        self.longer = not (
            hasattr(source, "dataset")
            and hasattr(source.dataset, "__getitem__")
            and hasattr(source.dataset, "__len__")
        )
        if not self.longer and len(source.dataset) < rows * replicas:
            raise JobError(
                f"the DataLoader's dataset holds {len(source.dataset)} samples, and {replicas}"
                f" devices with {rows} each need {rows * replicas} a step: give more samples, a"
                " smaller batch_size or fewer devices"
            )

    def _indices(self, first: int) -> Iterator[list[int]]:
        joined = self.rows * self.replicas
        steps = len(self.source.dataset) // joined
        for step in itertools.count(first):
            order = torch.randperm(
                len(self.source.dataset),
                generator=generator_of(self.seed * 1_000_003 + step // steps),
            )
            start = (step % steps) * joined + self.rank * self.rows
            yield order[start : start + self.rows].tolist()

    def begun(self, step: int) -> Iterator[Any]:
        if not self.longer:
            more = {"collate_fn": self.source.collate_fn, "num_workers": self.source.num_workers}
            return iter(DataLoader(self.source.dataset, batch_sampler=self._indices(step), **more))
        every = itertools.chain.from_iterable(itertools.repeat(self.source))
        return itertools.islice(every, step * self.replicas + self.rank, None, self.replicas)
