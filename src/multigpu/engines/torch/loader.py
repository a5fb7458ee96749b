"""Batches made by other processes: PyTorch's DataLoader over a Source, a whole shard an item, in the order of the steps."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from multigpu.inputs.batch import Batch, Source
from multigpu.run import Run
from multigpu.workloads import workloads

AHEAD_OF_EACH = 1
"""Batches that each worker has ready or in the making. More (the library's default is 2) evens out batches that take unequally long, and
lets a timed window live for longer from what was made before it."""

PRELOADED = ["__main__", "multigpu.engines.torch.loader", "multigpu.workloads.cnn", "multigpu.inputs.encoded", "PIL.JpegImagePlugin"]
"""What the server of processes imports once, so that each worker need not."""

Ready = tuple[dict[str, Tensor], Batch]
"""A shard's arrays as tensors on the host, page-locked where a GPU will read them, and its counts."""


@dataclass(frozen=True)
class Fault:
    """Why a worker has no batch: what a user can read, instead of a traceback from another process."""

    sentence: str


class Shards(Dataset[Any]):
    """The shards of one replica by step. A worker opens the Source itself: a Run travels between processes, files do not."""

    def __init__(self, run: Run, rank: int) -> None:
        self.run, self.rank = run, rank
        self.source: Source | None = None

    def __getitem__(self, step: int) -> Ready | Fault:
        try:
            if self.source is None:
                self.source = workloads()[self.run.workload].inputs[self.run.inputs](self.run, self.run.description)
            batch = self.source.batch(step, self.rank)
            # tensors, since those pass from process to process in shared memory
            return tensors_of(batch), replace(batch, arrays={})
        except Exception as error:
            return Fault(" ".join(str(error).split()) or type(error).__name__)


def tensors_of(batch: Batch) -> dict[str, Tensor]:
    """The arrays of a batch that has no drawn ones, without copying them."""
    return {name: torch.from_numpy(array) for name, array in batch.arrays.items()}


class Loader:
    """One replica's batches, from step `first` on, made by `run.input_workers` processes; with 0, here and when they are asked for.

    The processes come from a server that was started before and holds no GPU, since a process with a GPU and running threads
    must not be forked. They end with `close`, and by themselves when this process is gone.
    """

    def __init__(self, run: Run, rank: int, first: int = 0) -> None:
        assert run.input_workers is not None
        self.rank = rank
        more: dict[str, Any] = {}
        if run.input_workers:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(PRELOADED)
            more = {"multiprocessing_context": context, "prefetch_factor": AHEAD_OF_EACH}
        loader = DataLoader(
            Shards(run, rank),
            batch_size=None,
            sampler=itertools.count(first),
            num_workers=run.input_workers,
            pin_memory=run.device_type == "cuda",
            **more,
        )
        self.iterator: Iterator[Any] | None = iter(loader)

    def next(self) -> Ready:
        """The next step's batch, once it is there.

        Raises:
            ValueError: a worker could not make it; the sentence says why.
            RuntimeError: a worker is gone.
        """
        assert self.iterator is not None
        try:
            found = next(self.iterator)
        except RuntimeError as error:
            raise RuntimeError(
                f"an input worker of replica {self.rank} ended before its batch was ready: {str(error).splitlines()[0]}"
            ) from None
        if isinstance(found, Fault):
            raise ValueError(found.sentence)
        return found

    def close(self) -> None:
        """End the workers: the library does when its iterator goes."""
        self.iterator = None
