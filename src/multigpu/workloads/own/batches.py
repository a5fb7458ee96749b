"""A user's batches by step and replica, as named arrays: drawn by their function, or read from
their loader. Imports no framework.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from multigpu.inputs.batch import Batch, Source, batch_of_rows
from multigpu.inputs.files import fingerprint
from multigpu.run import Run
from multigpu.workloads.base import Model
from multigpu.workloads.own.job import Job, JobError, telling


def taken_apart(value: Any) -> tuple[Any, list[np.ndarray]]:
    """How the batch is built, as plain data, and its tensors in order, as arrays that share memory;
    a JobError where it holds others.
    """
    arrays: list[np.ndarray] = []

    def visit(part: Any, where: str) -> Any:
        if isinstance(part, Mapping):
            return {
                "dict": {str(name): visit(one, f"{where}[{name!r}]") for name, one in part.items()}
            }
        if isinstance(part, Sequence) and not isinstance(part, str | bytes):
            return {"tuple": [visit(one, f"{where}[{index}]") for index, one in enumerate(part)]}
        if hasattr(part, "detach"):  # PyTorch's
            part = part.detach().cpu()
            part = part.float() if part.is_floating_point() and part.element_size() < 4 else part
        array = np.ascontiguousarray(part) if isinstance(part, np.ndarray | np.generic) else part
        array = np.asarray(array) if hasattr(array, "__array__") else None
        if array is None or array.dtype.kind not in "biuf":
            raise JobError(
                f"{where} is a {type(part).__name__} where a tensor is due: a batch is (inputs,"
                " target), of tensors or arrays"
            )
        arrays.append(array)
        return len(arrays) - 1

    return visit(value, "batch"), arrays


def put_together(structure: Any, tensors: Mapping[str, Any]) -> Any:
    """The batch of which `taken_apart` gave the structure, from its tensors by number."""
    if isinstance(structure, int):
        return tensors[str(structure)]
    if "dict" in structure:
        return {name: put_together(part, tensors) for name, part in structure["dict"].items()}
    return tuple(put_together(part, tensors) for part in structure["tuple"])


def checked_rows(tensors: Sequence[np.ndarray], rows: int, who: str) -> None:
    """Refuse a batch of another size than asked for."""
    for index, tensor in enumerate(tensors):
        if not tensor.ndim or tensor.shape[0] != rows:
            raise JobError(
                f"{who} was asked for {rows} samples, and its tensor {index} has the shape"
                f" {list(tensor.shape)}: the first axis of every tensor counts the samples, so it"
                f" must be {rows}"
            )


class Drawn:
    """What the user's function gives for a generator of the step's and the replica's own.
    generator: makes one from a seed.
    """

    longer = False

    def __init__(
        self, function: Any, generator: Callable[[int], Any], rows: int, rank: int, seed: int
    ) -> None:
        self.function, self.generator, self.rows, self.rank, self.seed = (
            function,
            generator,
            rows,
            rank,
            seed,
        )

    def batch(self, step: int) -> Any:
        return self.function(
            self.rows,
            self.generator(
                int(np.random.SeedSequence([self.seed, step, self.rank]).generate_state(1)[0])
            ),
        )


class Streamed:
    """One replica's batches in their order, which its framework's reader begins at any step.
    longer: each may hold more than is taken.
    """

    longer = False

    def __init__(self, source: Any, rows: int, replicas: int, rank: int, seed: int) -> None:
        self.source, self.rows, self.replicas, self.rank, self.seed = (
            source,
            rows,
            replicas,
            rank,
            seed,
        )
        self.next, self.stream = -1, iter(())  # type: tuple[int, Iterator[Any]]

    def begun(self, step: int) -> Iterator[Any]:
        """Its batches from this step on."""
        raise NotImplementedError

    def batch(self, step: int) -> Any:
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
) -> Drawn | Streamed:
    """Where one replica's batches come from."""
    library = importlib.import_module(f"multigpu.workloads.own.{framework}")
    if callable(job.batch) and not hasattr(job.batch, "__iter__"):
        return Drawn(job.batch, library.generator_of, rows, rank, seed)
    loaded: Streamed = library.Loaded(job.batch, rows, replicas, rank, seed)
    return loaded


def arrays_of_step(batches: Drawn | Streamed, step: int) -> tuple[Any, list[np.ndarray]]:
    """One replica's batch of a step: its structure and its arrays; a JobError where it cannot be
    made, or is of another size.
    """
    with telling("batch"):
        made = batches.batch(step)
    structure, arrays = taken_apart(made)
    if batches.longer:
        arrays = [array[: batches.rows] for array in arrays]
    checked_rows(arrays, batches.rows, "batch")
    return structure, arrays


class OwnBatches(Source):
    """The Source of a user's job: a thread makes each batch a step ahead. One process for all
    replicas cuts the joined batch.
    """

    label = "own"

    def __init__(self, run: Run, model: Model) -> None:
        config = model.config
        self.job: Job = config.described.load(config.folder)
        self.framework, self.joined = run.framework, run.processes == "one"
        self.tables, self.structure = config.described.tables, config.described.structure
        self.sizes, self.seed = run.shard_sizes, run.seed
        self.capacity = {name: table.ids * max(self.sizes) for name, table in self.tables.items()}
        self.fingerprint = fingerprint("own", model.name, run.seed)
        self.each: dict[int, Drawn | Streamed] = {}
        self.known: tuple[int, list[np.ndarray]] = -1, []

    def _arrays(self, step: int, rows: int, replicas: int, rank: int) -> list[np.ndarray]:
        if rank not in self.each:
            self.each[rank] = batches_of(self.framework, self.job, rows, replicas, rank, self.seed)
        structure, arrays = arrays_of_step(self.each[rank], step)
        if structure != self.structure:
            raise JobError(
                f"batch gave {structure} in step {step} and {self.structure} at first: every batch"
                " must be built alike"
            )
        return arrays

    def batch(self, step: int, rank: int) -> Batch:
        """The shard of `rank`; a JobError where the user's function or loader fails, or gives what
        it did not give at first.
        """
        rows = self.sizes[rank]
        if not self.joined:
            arrays = self._arrays(step, rows, len(self.sizes), rank)
        else:
            if step != self.known[0]:
                self.known = step, self._arrays(step, sum(self.sizes), 1, 0)
            first = sum(self.sizes[:rank])
            arrays = [array[first : first + rows] for array in self.known[1]]
        named = {str(index): array for index, array in enumerate(arrays)}
        return batch_of_rows(
            rank, self.sizes, named, {name: table.ids for name, table in self.tables.items()}
        )
