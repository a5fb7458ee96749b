"""Inputs of the stacks of one kind of layer: rows of random numbers with random labels, drawn by the engine on its own device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from multigpu.inputs.batch import Batch, Draw
from multigpu.inputs.hashing import fingerprint

if TYPE_CHECKING:
    from multigpu.run import Run
    from multigpu.workloads.base import Model

LAW_VERSION = 1
"""Enters the fingerprint of what is drawn: raise it when the same seed comes to give other batches."""


class DrawnSamples:
    """Rows of N(0, 1) numbers, labels uniform over the model's classes; one batch a shard, the same in every step."""

    label = "synthetic"
    period = 1

    def __init__(self, run: Run, model: Model) -> None:
        self.capacity: dict[str, int] = {}
        self._sizes, self._seed = run.shard_sizes, run.seed
        self._shape, self._classes = tuple(model.config.row_shape), int(model.config.classes)
        self.fingerprint = fingerprint(LAW_VERSION, "samples", self._shape, self._classes, run.seed)

    def batch(self, step: int, rank: int) -> Batch:
        """The shard of `rank`."""
        seeds = [int(seed) for seed in np.random.SeedSequence([self._seed, rank]).generate_state(2)]
        count, sizes = self._sizes[rank], self._sizes
        arrays: dict[str, np.ndarray | Draw] = {
            "samples": Draw((count, *self._shape), "normal", seeds[0]),
            "labels": Draw((count,), "labels", seeds[1], self._classes),
        }
        return Batch(arrays, rank, units=count, padded_units=count, loss_terms=tuple(sizes), lookups=tuple({} for _ in sizes))


def synthetic_samples(run: Run, model: Model) -> DrawnSamples:
    """Random rows of the model's shape.

    Raises:
        ValueError: the Run names files.
    """
    if run.data is not None:
        raise ValueError(f"inputs {run.inputs!r} reads no files: leave out data, which names {', '.join(run.data)}")
    return DrawnSamples(run, model)
