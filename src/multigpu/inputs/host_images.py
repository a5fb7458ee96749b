"""Random images that lie in the host's memory: nothing is read or decoded, but every step's batch crosses to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from multigpu.inputs.batch import Batch
from multigpu.inputs.hashing import fingerprint
from multigpu.inputs.images import image_batch

if TYPE_CHECKING:
    from multigpu.run import Run
    from multigpu.workloads.base import Model

LAW_VERSION = 1
"""Enters the fingerprint: raise it when the same seed comes to give other batches."""

SPARE = 31
"""Images beyond one batch in a replica's memory: a step takes them from one of 32 places, so that batches differ without being drawn
anew (drawing normal numbers takes longer than training on them)."""


class HostImages:
    """N(0, 1) pixels and uniform labels; each replica has its own, and each step another window of them. Images are views: no copy.

    With `image_dtype` "uint8" they are bytes of 0 .. 255, uniform, a pixel's channels together.
    """

    label = "synthetic, from the host"
    period = None

    def __init__(self, run: Run, model: Model) -> None:
        config = model.config
        self.capacity: dict[str, int] = {}
        self._sizes, self._seed, self._classes = run.shard_sizes, run.seed, int(config.classes)
        self._shape = (int(config.channels), int(config.image_size), int(config.image_size))
        self._bytes = run.image_dtype is not None
        if self._bytes and self._shape[0] != 3:
            raise ValueError(f"image_dtype {run.image_dtype!r} is for pixels of 3 channels: model {model.name!r} takes {self._shape[0]}")
        self._drawn: dict[int, np.ndarray] = {}
        law = "host bytes" if self._bytes else "host"
        self.fingerprint = fingerprint(LAW_VERSION, law, self._shape, self._classes, run.seed)

    def _images(self, rank: int) -> np.ndarray:
        if rank not in self._drawn:
            rng = np.random.default_rng([self._seed, rank])
            count, (channels, height, width) = self._sizes[rank] + SPARE, self._shape
            if self._bytes:
                self._drawn[rank] = rng.integers(256, size=(count, height, width, channels), dtype=np.uint8)
            else:
                self._drawn[rank] = rng.standard_normal((count, channels, height, width), dtype=np.float32)
        return self._drawn[rank]

    def batch(self, step: int, rank: int) -> Batch:
        """The shard of `rank` in step `step`."""
        count, first = self._sizes[rank], step % (SPARE + 1)
        labels = np.random.default_rng([self._seed, rank, step]).integers(self._classes, size=count)
        return image_batch(rank, self._sizes, self._images(rank)[first : first + count], labels)


def synthetic_host(run: Run, model: Model) -> HostImages:
    """Random images of the model's size in the host's memory.

    Raises:
        ValueError: the Run names files, or asks for pixels of a model without three channels.
    """
    if run.data is not None:
        raise ValueError(f"inputs {run.inputs!r} reads no files: leave out data, which names {', '.join(run.data)}")
    return HostImages(run, model)
