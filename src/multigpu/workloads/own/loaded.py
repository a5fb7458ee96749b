"""A DataLoader's or an iterable's batches for each replica, alike in every process."""

import copy
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

from multigpu.spec.errors import JobError
from multigpu.workloads.own.batches import Streamed
from multigpu.workloads.own.seeding import seed_all, seeds_of

OF_A_BATCH, OF_AN_ORDER, OF_A_STREAM = 1, 2, 3
"""What is drawn: of a batch's samples, of an epoch's order, of a stream's batches."""


def generator_of(seed: int) -> torch.Generator:
    """Return the generator that a user's function draws from."""
    return torch.Generator().manual_seed(seed)


class SeededSamples(Dataset[Any]):
    """A dataset whose batches draw alike everywhere. An index is (seed, indices of its own)."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.__getitems__(index)

    def __getitems__(self, index: tuple[int, Sequence[Any]]) -> Any:
        seed, indices = index
        seed_all(seed)
        together = getattr(self.dataset, "__getitems__", None)
        return together(indices) if together else [self.dataset[each] for each in indices]


def is_map(source: Any) -> bool:
    """Whether a loader's samples can be asked for by number and put together by it."""
    dataset = getattr(source, "dataset", None)
    if isinstance(source, DataLoader) and source.batch_sampler is None:
        return False
    return hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")


def own_order(source: Any) -> str:
    """Which part of a DataLoader chooses samples in a way of the user's own: "batch_sampler",
    "sampler", or "" where all samples come equally often.
    """
    if type(getattr(source, "batch_sampler", None)) not in (BatchSampler, type(None)):
        return "batch_sampler"
    sampler = getattr(source, "sampler", None)
    plain = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement
    )
    return "" if plain or sampler is None or source.batch_sampler is None else "sampler"


class Loaded(Streamed):
    """Samples of a DataLoader in an order of the seed's or its sampler's, or of an iterable."""

    def __init__(self, source: Any, rows: int, replicas: int, rank: int, seed: int) -> None:
        super().__init__(source, rows, replicas, rank, seed)
        self.reads_by_number = is_map(source)
        self.order = own_order(source) if self.reads_by_number else ""
        self.longer = not self.reads_by_number
        needed = rows * replicas
        if self.reads_by_number and not self.order and len(source.dataset) < needed:
            raise JobError(
                f"the DataLoader's dataset holds {len(source.dataset)} samples, and {replicas}"
                f" devices with {rows} each need {needed} a step: give more samples, a"
                " smaller batch_size or fewer devices"
            )

    def _epoch(self, epoch: int) -> Iterator[list[Any]]:
        """Each step's indices of all replicas, joined."""
        joined = self.rows * self.replicas
        if not self.order:
            order: list[Any] = torch.randperm(
                len(self.source.dataset), generator=generator_of(self.seed * 1_000_003 + epoch)
            ).tolist()
            for start in range(0, len(order) - joined + 1, joined):
                yield order[start : start + joined]
            return
        sampler = getattr(self.source, self.order)
        seed_all(seeds_of(self.seed, epoch, OF_AN_ORDER)[1])
        if isinstance(generator := getattr(sampler, "generator", None), torch.Generator):
            generator.manual_seed(seeds_of(self.seed, epoch, OF_AN_ORDER)[0])
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        # of a sampler without an end, as many as an epoch may have
        most = max(1_000_000, len(self.source.dataset))
        # in one go: what the samples draw may not change the order
        chosen: list[Any] = list(itertools.islice(sampler, most))
        if self.order == "batch_sampler":
            long = [list(batch)[: self.rows] for batch in chosen if len(batch) >= self.rows]
            for start in range(0, len(long) - self.replicas + 1, self.replicas):
                yield list(itertools.chain(*long[start : start + self.replicas]))
            return
        for start in range(0, len(chosen) - joined + 1, joined):
            yield chosen[start : start + joined]

    def _indices(self, first: int) -> Iterator[tuple[int, list[Any]]]:
        """From a step on, the seed of this replica's batch and its samples."""
        step = 0
        for epoch in itertools.count():
            empty = True
            for joined in self._epochs_steps(epoch, first - step):
                empty = False
                if joined is not None and step >= first:
                    start = self.rank * self.rows
                    seed = seeds_of(self.seed, step, self.rank, OF_A_BATCH)[1]
                    yield seed, joined[start : start + self.rows]
                step += 1
            if empty:
                raise JobError(
                    f"the DataLoader's {self.order or 'dataset'} gives no step of {self.rows}"
                    f" samples for each of {self.replicas} devices: give more samples, or a smaller"
                    " batch_size"
                )

    def _epochs_steps(self, epoch: int, ahead: int) -> Iterable[list[Any] | None]:
        """An epoch's steps; None for each where all are passed over and their number is known."""
        if not self.order and ahead >= (count := len(self.source.dataset) // self._joined()):
            return itertools.repeat(None, count)
        return self._epoch(epoch)

    def _joined(self) -> int:
        return self.rows * self.replicas

    def begun(self, step: int) -> Iterator[Any]:
        # no circle of what reads and what is read: else a loader's workers would outlive it
        reader = copy.copy(self)
        reader.stream = iter(())
        if not self.reads_by_number:
            return reader._streamed(step)
        source = self.source
        more = {
            name: getattr(source, name)
            for name in ("collate_fn", "num_workers", "worker_init_fn", "multiprocessing_context")
            if getattr(source, name, None) is not None
        }
        if more.get("num_workers") and getattr(source, "prefetch_factor", None):
            more["prefetch_factor"] = source.prefetch_factor
        order: Any = reader._indices(step)
        return iter(DataLoader(SeededSamples(source.dataset), batch_sampler=order, **more))

    def _streamed(self, first: int) -> Iterator[Any]:
        """An iterable's batches of this replica: every process reads all of them."""
        number = short = 0
        for epoch in itertools.count():
            seed_all(seeds_of(self.seed, epoch, OF_AN_ORDER, OF_A_STREAM)[1])
            reader, before = iter(self.source), number
            while True:
                seed_all(seeds_of(self.seed, number, OF_A_STREAM)[1])
                try:
                    batch = next(reader)
                except StopIteration:
                    break
                if self._is_short(batch):
                    short += 1
                    continue
                if number >= first * self.replicas and number % self.replicas == self.rank:
                    yield batch
                number += 1
            if number == before:
                if short:
                    raise JobError(
                        f"no batch of batch has {self.rows} samples: make its batch_size that of"
                        " the job, or the job's smaller"
                    )
                return

    def _is_short(self, batch: Any) -> bool:
        """Whether it has fewer samples than a step takes, as an epoch's last batch may."""
        tensor = batch
        while not hasattr(tensor, "shape"):
            if hasattr(tensor, "values"):
                tensor = list(tensor.values())
            if not isinstance(tensor, Sequence) or not len(tensor) or isinstance(tensor, str):
                return False
            tensor = tensor[0]
        return bool(len(tensor.shape)) and tensor.shape[0] < self.rows
