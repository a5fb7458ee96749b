"""A user's batches by step and replica, drawn or read from a loader. Imports no framework."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from multigpu.inputs.batch import Batch, Source, batch_of_rows
from multigpu.inputs.files import fingerprint
from multigpu.placements.resolve import shard_sizes
from multigpu.spec.errors import JobError
from multigpu.spec.model import Model
from multigpu.spec.run import Run
from multigpu.workloads.own.description import Described, Table
from multigpu.workloads.own.job import Job, telling
from multigpu.workloads.own.seeding import ALONE, seed_all, seeds_of
from multigpu.workloads.own.structure import checked_rows, is_built_alike, names_of, taken_apart


@dataclass
class DrawnBatches:
    """Batches of the user's function, from generators whose seeds follow from step and replica,
    those that it does not name included. generator: makes one from a seed.
    """

    function: Any
    generator: Callable[[int], Any]
    rows: int
    rank: int
    seed: int
    longer: ClassVar[bool] = False

    def batch(self, step: int) -> Any:
        given, others = seeds_of(self.seed, step, self.rank)
        with ALONE:
            seed_all(others)
            return self.function(self.rows, self.generator(given))


class Streamed:
    """One replica's batches in their order, begun at any step. longer: each may hold more samples
    than are taken; one that holds fewer is left out, as the last of a loader may.
    """

    longer = False

    def __init__(self, source: Any, rows: int, replicas: int, rank: int, seed: int) -> None:
        self.source = source
        self.rows = rows
        self.replicas = replicas
        self.rank = rank
        self.seed = seed
        self.next = -1
        self.stream: Iterator[Any] = iter(())
        if iter(source) is source:
            raise JobError(
                f"batch is a {type(source).__name__}, which can be read once and not again: give a"
                " function batch(n, generator), a list of batches or a DataLoader"
            )

    def begun(self, step: int) -> Iterator[Any]:
        """Its batches from this step on."""
        raise NotImplementedError

    def batch(self, step: int) -> Any:
        with ALONE:
            if step != self.next:
                self.stream, self.next = self.begun(step), step
            self.next += 1
            try:
                return next(self.stream)
            except StopIteration:
                raise JobError(
                    "batch has no samples: give a source that has some, and can be read again"
                ) from None


def batches_of(
    framework: str, job: Job, rows: int, replicas: int, rank: int, seed: int
) -> DrawnBatches | Streamed:
    """Where one replica's batches come from."""
    library = importlib.import_module(f"multigpu.workloads.own.{framework}")
    if callable(job.batch) and not hasattr(job.batch, "__iter__"):
        check_takes_both(job)
        return DrawnBatches(job.batch, library.generator_of, rows, rank, seed)
    return library.Loaded(job.batch, rows, replicas, rank, seed)


def check_takes_both(job: Job) -> None:
    """Refuse, by a JobError, a function of batches that cannot be called as it will be."""
    try:
        told = inspect.signature(job.batch)
    except ValueError:  # it has none that Python knows
        return
    try:
        told.bind(job.batch_size, None)
    except TypeError:
        raise JobError(
            f"batch takes ({', '.join(told.parameters)}), and is called with how many samples to"
            " give and a generator: write batch(n, generator), and draw from that generator, so"
            f" that each device has samples of its own ({job.made_at})"
        ) from None


def arrays_of_step(batches: DrawnBatches | Streamed, step: int) -> tuple[Any, list[np.ndarray]]:
    """One replica's batch of a step: structure and arrays; a JobError: it cannot be made."""
    with telling("batch"):
        made = batches.batch(step)
    structure, arrays = taken_apart(made)
    if batches.longer:
        arrays = [array[: batches.rows] for array in arrays]
    checked_rows(arrays, batches.rows, "batch", names_of(structure))
    return structure, arrays


def asked_of(table: Table, arrays: list[np.ndarray]) -> int:
    """How many rows of a table a batch looks up."""
    leaf = arrays[int(table.leaf)]
    if table.column is not None:
        return len(leaf)
    return int(leaf.size if table.stretch is None else leaf[:, slice(*table.stretch)].size)


class OwnBatches(Source):
    """The Source of a user's job: a thread makes each batch a step ahead. One process for all
    replicas cuts the global batch. Where batches differ in length, each shard tells its own rows
    alone: `engines.torch.ragged` has processes tell each other.
    """

    label = "own"

    def __init__(self, run: Run, model: Model) -> None:
        config = model.config
        self.job: Job = config.described.load(config.folder)
        self.framework, self.joined = run.framework, run.processes == "one"
        self.described: Described = config.described
        self.tables, self.structure = config.described.tables, config.described.structure
        self.names = names_of(self.structure)
        self.sizes, self.seed = shard_sizes(run), run.seed
        self.capacity = {name: table.ids * max(self.sizes) for name, table in self.tables.items()}
        self.fingerprint = fingerprint("own", model.name, run.seed)
        self.each: dict[int, DrawnBatches | Streamed] = {}
        self.known: tuple[int, list[np.ndarray]] = -1, []

    def _arrays(self, step: int, rows: int, replicas: int, rank: int) -> list[np.ndarray]:
        if rank not in self.each:
            self.each[rank] = batches_of(self.framework, self.job, rows, replicas, rank, self.seed)
        structure, arrays = arrays_of_step(self.each[rank], step)
        if not is_built_alike(structure, self.structure):
            raise JobError(
                f"batch gave {structure} in step {step} and {self.structure} at first: every batch"
                " must be built alike"
            )
        # what the next batch will be written over is kept for the step that reads it
        return [array.copy() for array in arrays] if self.described.reused else arrays

    def batch(self, step: int, rank: int) -> Batch:
        """The shard of `rank`; a JobError where the user's code fails, or gives another kind."""
        rows = self.sizes[rank]
        if not self.joined:
            arrays = self._arrays(step, rows, len(self.sizes), rank)
        else:
            if step != self.known[0]:
                self.known = step, self._arrays(step, sum(self.sizes), 1, 0)
            first = sum(self.sizes[:rank])
            arrays = [array[first : first + rows] for array in self.known[1]]
        named = {str(index): array for index, array in enumerate(arrays)}
        return batch_of_rows(rank, self.sizes, named, self._of_a_row(step, rows, arrays))

    def _of_a_row(self, step: int, rows: int, arrays: list[np.ndarray]) -> dict[str, int]:
        """How many rows of each table one sample of this batch looks up."""
        found = {}
        for name, table in self.tables.items():
            asked = asked_of(table, arrays)
            if asked != table.ids * rows and not self.described.ragged:
                leaf = int(table.leaf)
                raise JobError(
                    f"{self.names[leaf]} has the shape {list(arrays[leaf].shape)} in step {step},"
                    f" where batches were of samples of {list(self.described.leaves[leaf][0])} when"
                    " the job was examined: pad its batches to one length, or let the first ones"
                    " differ too"
                )
            found[name] = asked // rows
        return found
