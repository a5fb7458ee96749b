"""Inputs of the image workload: synthetic images, scikit-learn's digits, CIFAR-10, and folders of images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from multigpu.inputs.batch import Batch, Draw
from multigpu.inputs.epochs import ShuffledEpochs
from multigpu.inputs.hashing import fingerprint
from multigpu.inputs.pictures import CIFAR_CHANNELS, Cifar10, Digits, ImageFolder, Pictures

if TYPE_CHECKING:
    from multigpu.run import Run
    from multigpu.workloads.base import Model

LAW_VERSION = 1
"""Enters the fingerprint of what is drawn: raise it when the same seed comes to give other batches."""


def image_batch(rank: int, shard_sizes: list[int], images: np.ndarray | Draw, labels: np.ndarray | Draw) -> Batch:
    """One shard; an image is one unit and one term of the loss, and nothing is padded or looked up."""
    count = shard_sizes[rank]
    arrays = {"images": images, "labels": labels}
    return Batch(arrays, rank, units=count, padded_units=count, loss_terms=tuple(shard_sizes), lookups=tuple({} for _ in shard_sizes))


class DrawnImages:
    """Images that the engine draws on its own device: N(0, 1) pixels, labels uniform over the model's classes; one batch a shard."""

    label = "synthetic"
    period = 1

    def __init__(self, run: Run, model: Model) -> None:
        config = model.config
        self.capacity: dict[str, int] = {}
        self._sizes, self._seed, self._classes = run.shard_sizes, run.seed, int(config.classes)
        self._shape = (int(config.channels), int(config.image_size), int(config.image_size))
        self.fingerprint = fingerprint(LAW_VERSION, "normal", self._shape, self._classes, run.seed)

    def batch(self, step: int, rank: int) -> Batch:
        """The shard of `rank`, the same in every step."""
        seeds = [int(seed) for seed in np.random.SeedSequence([self._seed, rank]).generate_state(2)]
        count = self._sizes[rank]
        labels = Draw((count,), "labels", seeds[1], self._classes)
        return image_batch(rank, self._sizes, Draw((count, *self._shape), "normal", seeds[0]), labels)


class StoredImages:
    """A Source over Pictures: in every epoch all of them, in an order drawn from the Run's seed (`ShuffledEpochs`)."""

    period = None

    def __init__(self, run: Run, model: Model, pictures: Pictures) -> None:
        if pictures.classes > model.config.classes:
            raise ValueError(
                f"{pictures.label} has {pictures.classes} classes: model {model.name!r} tells only {model.config.classes} apart"
            )
        self.label = pictures.label
        self.capacity: dict[str, int] = {}
        self._pictures, self._sizes = pictures, run.shard_sizes
        self._plan = ShuffledEpochs(len(pictures), self._sizes, run.seed)
        self.count, self.steps_per_epoch = len(pictures), self._plan.steps_per_epoch

    @property
    def fingerprint(self) -> str:
        """The data set's; a folder of images is hashed when this is first asked for."""
        return self._pictures.fingerprint

    def items(self, step: int, rank: int) -> np.ndarray:
        """Which images `batch(step, rank)` holds, numbers 0 .. count - 1, shape (shard size,)."""
        return self._plan.chosen(step, rank)

    def batch(self, step: int, rank: int) -> Batch:
        """The shard of `rank` in step `step`."""
        images, labels = self._pictures.read(self.items(step, rank))
        return image_batch(rank, self._sizes, images, labels)


def _no_files(run: Run) -> None:
    if run.data is not None:
        raise ValueError(f"inputs {run.inputs!r} reads no files: leave out data, which names {', '.join(run.data)}")


def _folder(run: Run) -> Path:
    if run.data is None or len(run.data) != 1:
        raise ValueError(f"inputs {run.inputs!r} needs data to name one folder: it names {len(run.data or ())}")
    return Path(run.data[0])


def synthetic_images(run: Run, model: Model) -> DrawnImages:
    """Random images of the model's size, drawn by the engine on its device.

    Raises:
        ValueError: the Run names files.
    """
    _no_files(run)
    return DrawnImages(run, model)


def digits(run: Run, model: Model) -> StoredImages:
    """scikit-learn's digits: real labels, nothing to download.

    Raises:
        ValueError: the Run names files, the model tells fewer than 10 classes apart, or its joined batch exceeds 1,797.
    """
    _no_files(run)
    return StoredImages(run, model, Digits(model.config.image_size, model.config.channels))


def cifar10(run: Run, model: Model) -> StoredImages:
    """CIFAR-10 from the folder that `run.data` names.

    Raises:
        ValueError: there is no such folder, its files are not CIFAR-10's, or the model does not fit (three channels, 10 classes).
    """
    if model.config.channels != CIFAR_CHANNELS:
        raise ValueError(f"CIFAR-10 has {CIFAR_CHANNELS} channels: model {model.name!r} takes {model.config.channels}")
    return StoredImages(run, model, Cifar10(_folder(run), model.config.image_size))


def image_folder(run: Run, model: Model) -> StoredImages:
    """Your own images, folder/class/*.png or *.jpg; `run.data` names the folder.

    Raises:
        ValueError: there is no such folder, it holds no images, or the model does not fit; while reading, a file is no image.
    """
    return StoredImages(run, model, ImageFolder(_folder(run), model.config.image_size, model.config.channels))
