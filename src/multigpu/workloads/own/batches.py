"""A user's batches by step and replica: drawn by their function, or read by their DataLoader."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from multigpu.inputs.batch import Batch
from multigpu.inputs.hashing import fingerprint
from multigpu.run import Run
from multigpu.workloads.base import Model
from multigpu.workloads.own.job import Job
from multigpu.workloads.own.loading import JobError, telling
from multigpu.workloads.own.structure import checked_rows, taken_apart


class Loaded:
    """Samples of a DataLoader's dataset in an order of the seed's own: every replica reads its own batches of each step."""

    def __init__(self, loader: Any, rows: int, replicas: int, rank: int, seed: int) -> None:
        self.loader, self.rows, self.replicas, self.rank, self.seed = loader, rows, replicas, rank, seed
        self.mapped = hasattr(loader, "dataset") and hasattr(loader.dataset, "__getitem__") and hasattr(loader.dataset, "__len__")
        if self.mapped and len(loader.dataset) < rows * replicas:
            raise JobError(
                f"the DataLoader's dataset holds {len(loader.dataset)} samples, and {replicas} devices with {rows} each need"
                f" {rows * replicas} a step: give more samples, a smaller batch_size or fewer devices"
            )
        self.next, self.stream = -1, iter(())  # type: tuple[int, Iterator[Any]]

    def _indices(self, first: int) -> Iterator[list[int]]:
        """What the replica reads in step `first` and all that follow."""
        joined = self.rows * self.replicas
        steps = len(self.loader.dataset) // joined
        for step in itertools.count(first):
            order = torch.randperm(len(self.loader.dataset), generator=torch.Generator().manual_seed(self.seed * 1_000_003 + step // steps))
            start = (step % steps) * joined + self.rank * self.rows
            yield order[start : start + self.rows].tolist()

    def _from(self, step: int) -> Iterator[Any]:
        if self.mapped:
            more = {"collate_fn": self.loader.collate_fn, "num_workers": self.loader.num_workers}
            return iter(DataLoader(self.loader.dataset, batch_sampler=self._indices(step), **more))
        every = itertools.chain.from_iterable(itertools.repeat(self.loader))
        return itertools.islice(every, step * self.replicas + self.rank, None, self.replicas)

    def batch(self, step: int) -> Any:
        """The batch of this step; asked for in another order than theirs, batches are read anew."""
        if step != self.next:
            self.stream, self.next = self._from(step), step
        self.next += 1
        try:
            return next(self.stream)
        except StopIteration:
            raise JobError("batch has no samples: give a DataLoader or an iterable that has some, and can be read again") from None


class Drawn:
    """What the user's function gives for a generator of the step's and the replica's own."""

    def __init__(self, function: Any, rows: int, rank: int, seed: int) -> None:
        self.function, self.rows, self.rank, self.seed = function, rows, rank, seed

    def batch(self, step: int) -> Any:
        seed = int(np.random.SeedSequence([self.seed, step, self.rank]).generate_state(1)[0])
        return self.function(self.rows, torch.Generator().manual_seed(seed))


def batches_of(job: Job, rows: int, replicas: int, rank: int, seed: int) -> Loaded | Drawn:
    """Where one replica's batches come from."""
    if callable(job.batch) and not hasattr(job.batch, "__iter__"):
        return Drawn(job.batch, rows, rank, seed)
    return Loaded(job.batch, rows, replicas, rank, seed)


def tensors_of_step(batches: Loaded | Drawn, step: int) -> tuple[Any, list[Tensor]]:
    """One replica's batch of a step: its structure and its tensors.

    Raises:
        JobError: it cannot be made, or is of another size than asked for.
    """
    with telling("batch"):
        made = batches.batch(step)
    structure, tensors = taken_apart(made)
    if isinstance(batches, Loaded) and not batches.mapped:
        tensors = [tensor[: batches.rows] for tensor in tensors]
    checked_rows(tensors, batches.rows, "batch")
    return structure, tensors


class OwnBatches:
    """The Source of a user's job: nothing repeats, so a thread makes each batch a step ahead, which a step may have to wait for."""

    label, period = "own", None

    def __init__(self, run: Run, model: Model) -> None:
        config = model.config
        self.job: Job = config.described.load(config.folder)
        self.tables, self.structure = config.described.tables, config.described.structure
        self.sizes, self.seed = run.shard_sizes, run.seed
        self.capacity = {name: table.ids * max(self.sizes) for name, table in self.tables.items()}
        self.fingerprint = fingerprint("own", model.name, run.seed)
        self.each: dict[int, Loaded | Drawn] = {}

    def batch(self, step: int, rank: int) -> Batch:
        """The shard of `rank`.

        Raises:
            JobError: the user's function or loader fails, or gives what it did not give at first.
        """
        rows = self.sizes[rank]
        if rank not in self.each:
            self.each[rank] = batches_of(self.job, rows, len(self.sizes), rank, self.seed)
        structure, tensors = tensors_of_step(self.each[rank], step)
        if structure != self.structure:
            raise JobError(f"batch gave {structure} in step {step} and {self.structure} at first: every batch must be built alike")
        arrays: dict[str, Any] = {str(index): tensor.numpy() for index, tensor in enumerate(tensors)}
        lookups = tuple({name: table.ids * size for name, table in self.tables.items()} for size in self.sizes)
        return Batch(arrays, rank, units=rows, padded_units=rows, loss_terms=tuple(self.sizes), lookups=lookups)
