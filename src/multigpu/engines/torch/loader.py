"""Batches made by other processes: PyTorch's DataLoader, a whole shard an item."""

import itertools
import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from multigpu.inputs.batch import Batch, Source
from multigpu.spec.run import Run
from multigpu.workloads.sources import open_source

# batches that each worker has ready or in the making. More would let a timed window live for longer
# on earlier work.
AHEAD_OF_EACH = 1

PRELOADED = [
    "__main__",
    "multigpu.engines.torch.loader",
    "multigpu.workloads.cnn",
    "multigpu.inputs.encoded",
    "PIL.JpegImagePlugin",
]
"""What the server of processes imports once, so that each worker need not."""

# a shard's arrays on the host, page-locked where a GPU will read them, and its counts
Ready = tuple[dict[str, Tensor], Batch]


class Shards(Dataset[Any]):
    """One replica's shards by step, or a sentence of what failed in another process."""

    def __init__(self, run: Run, rank: int) -> None:
        self.run, self.rank = run, rank
        self.source: Source | None = None

    def __getitem__(self, step: int) -> Ready | str:
        try:
            if self.source is None:
                self.source = open_source(self.run)
            batch = self.source.batch(step, self.rank)
            # tensors, since those pass from process to process in shared memory
            return tensors_of(batch), replace(batch, arrays={})
        except Exception as error:
            return " ".join(str(error).split()) or type(error).__name__


def tensors_of(batch: Batch) -> dict[str, Tensor]:
    """The arrays of a batch that has no drawn ones, without copying them."""
    return {name: torch.from_numpy(array) for name, array in batch.arrays.items()}


class Workers:
    """A replica's batches from `run.input_workers` processes (0: here, when asked)."""

    def __init__(self, run: Run, rank: int) -> None:
        self.run, self.rank, self.step = run, rank, 0
        # from the first step on: nothing is made ahead while the model is built
        self.iterator: Iterator[Any] | None = None

    def _begun(self, step: int) -> Iterator[Any]:
        more: dict[str, Any] = {}
        if self.run.input_workers:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(PRELOADED)
            more = {"multiprocessing_context": context, "prefetch_factor": AHEAD_OF_EACH}
        workers, locked = self.run.input_workers or 0, self.run.device_type == "cuda"
        shards, order = Shards(self.run, self.rank), itertools.count(step)
        more |= {"num_workers": workers, "pin_memory": locked}
        return iter(DataLoader(shards, batch_size=None, sampler=order, **more))

    def given(self, step: int) -> Ready:
        """The batch of this step; ValueError: why none can be made. Workers begin where asked."""
        if self.iterator is None or step != self.step:
            self.close()
            self.iterator = self._begun(step)
        self.step = step + 1
        try:
            found = next(self.iterator)
        except RuntimeError as error:
            raise RuntimeError(
                f"an input worker of replica {self.rank} ended before its batch was ready:"
                f" {str(error).splitlines()[0]}"
            ) from None
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def close(self) -> None:
        """End the workers: the library does when its iterator goes."""
        self.iterator = None
