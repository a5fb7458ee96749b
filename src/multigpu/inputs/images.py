"""Inputs of images and of stacks: rows drawn where they are used or held by the host, and stored
images, in part held out. ValueErrors say which files are lacking, or that a model does not fit.
"""

from functools import cache

import numpy as np

from multigpu.inputs.batch import Batch, Draw, Source, batch_of_rows
from multigpu.inputs.files import fingerprint, named_files, no_files
from multigpu.inputs.pictures import CIFAR_CHANNELS, Cifar10, Digits, ImageFolder, Pictures
from multigpu.inputs.plans import Epochs
from multigpu.inputs.teacher import TaughtImages
from multigpu.placements.resolve import shard_sizes
from multigpu.spec.model import Model
from multigpu.spec.run import Run

LAW_VERSION = 1
"""Enters fingerprints: raise it when the same seed comes to give other batches."""
SPARE = 31
"""Images beyond a batch in a replica's memory: drawing anew takes longer than training."""
SPLIT_SEED, DIGITS_HELD_OUT = 1797, 297
TEACHER_SIZES = {"teacher": (50_000, 10_000), "teacher_small": (4_000, 1_000)}
"""Images to train on, images held out; CIFAR-10's numbers, and some for CPUs."""


class DrawnRows(Source):
    """Rows that the engine draws: N(0, 1) numbers (`array`: their name), uniform labels; one batch
    a shard. law: enters the fingerprint.
    """

    label = "synthetic"
    period = 1

    def __init__(
        self, run: Run, model: Model, array: str, law: str, shape: tuple[int, ...]
    ) -> None:
        no_files(run)
        self._sizes = shard_sizes(run)
        self._seed = run.seed
        self._classes = int(model.config.classes)
        self._array, self._shape = array, shape
        self.fingerprint = fingerprint(LAW_VERSION, law, shape, self._classes, run.seed)

    def batch(self, step: int, rank: int) -> Batch:
        seeds = [int(seed) for seed in np.random.SeedSequence([self._seed, rank]).generate_state(2)]
        count = self._sizes[rank]
        rows = Draw((count, *self._shape), "normal", seeds[0])
        labels = Draw((count,), "labels", seeds[1], self._classes)
        return batch_of_rows(rank, self._sizes, {self._array: rows, "labels": labels})


def _image_shape(model: Model) -> tuple[int, int, int]:
    return int(model.config.channels), int(model.config.image_size), int(model.config.image_size)


class HostImages(Source):
    """Random images in the host's memory: nothing is read or decoded, but every step's batch
    crosses to the device. N(0, 1) pixels (with `image_dtype` "uint8" uniform bytes, a pixel's
    channels together) and uniform labels; each replica has its own, and each step another window of
    them, without a copy.
    """

    label = "synthetic, from the host"

    def __init__(self, run: Run, model: Model) -> None:
        no_files(run)
        self._sizes = shard_sizes(run)
        self._seed = run.seed
        self._classes = int(model.config.classes)
        self._shape, self._bytes = _image_shape(model), run.image_dtype is not None
        if self._bytes and self._shape[0] != 3:
            raise ValueError(
                f"image_dtype {run.image_dtype!r} is for pixels of 3 channels: model {model.name!r}"
                f" takes {self._shape[0]}"
            )
        self._images = cache(self._draw)
        law = "host bytes" if self._bytes else "host"
        self.fingerprint = fingerprint(LAW_VERSION, law, self._shape, self._classes, run.seed)

    def _draw(self, rank: int) -> np.ndarray:
        rng = np.random.default_rng([self._seed, rank])
        count, (channels, height, width) = self._sizes[rank] + SPARE, self._shape
        if self._bytes:
            return rng.integers(256, size=(count, height, width, channels), dtype=np.uint8)
        return rng.standard_normal((count, channels, height, width), dtype=np.float32)

    def batch(self, step: int, rank: int) -> Batch:
        count, first = self._sizes[rank], step % (SPARE + 1)
        labels = np.random.default_rng([self._seed, rank, step]).integers(self._classes, size=count)
        return batch_of_rows(
            rank,
            self._sizes,
            {"images": self._images(rank)[first : first + count], "labels": labels},
        )


class StoredImages(Epochs):
    """A Source over Pictures. held_out: others, for scores."""

    def __init__(
        self, run: Run, model: Model, pictures: Pictures, held_out: Pictures | None = None
    ) -> None:
        if pictures.classes > model.config.classes:
            raise ValueError(
                f"{pictures.label} has {pictures.classes} classes: model {model.name!r} tells only"
                f" {model.config.classes} apart"
            )
        super().__init__(run, len(pictures))
        self.label, self._pictures, self._held_out = pictures.label, pictures, held_out

    @property
    def fingerprint(self) -> str:  # type: ignore[override]
        # a folder of images is hashed when this is first asked for
        return self._pictures.fingerprint

    def batch(self, step: int, rank: int) -> Batch:
        images, labels = self._pictures.read(self.items(step, rank))
        return batch_of_rows(rank, self._sizes, {"images": images, "labels": labels})

    def held_out(self) -> Pictures | None:
        return self._held_out


class Subset(Pictures):
    """Some of a set of pictures, numbered anew."""

    def __init__(self, pictures: Pictures, chosen: np.ndarray, name: str) -> None:
        self._pictures, self._chosen, self.labels = pictures, chosen, pictures.labels[chosen]
        self.label, self.classes = f"{pictures.label}, {name}", pictures.classes
        self.fingerprint = fingerprint(pictures.fingerprint, name, chosen.tolist())

    def images(self, chosen: np.ndarray) -> np.ndarray:
        return self._pictures.images(self._chosen[chosen])


def split(pictures: Pictures, held_out: int) -> tuple[Subset, Subset]:
    """Split into pictures to train on and so many to score with, alike for all seeds."""
    order = np.random.default_rng(SPLIT_SEED).permutation(len(pictures))
    held, trained = np.sort(order[:held_out]), np.sort(order[held_out:])
    return Subset(pictures, trained, f"{len(trained)} to train on"), Subset(
        pictures, held, f"{held_out} held out"
    )


def synthetic_images(run: Run, model: Model) -> DrawnRows:
    """Random images of the model's size, drawn by the engine on its device."""
    return DrawnRows(run, model, "images", "normal", _image_shape(model))


def synthetic_samples(run: Run, model: Model) -> DrawnRows:
    """Random rows of a stack's shape."""
    return DrawnRows(run, model, "samples", "samples", tuple(model.config.row_shape))


def _digits(run: Run, model: Model) -> Digits:
    no_files(run)
    return Digits(model.config.image_size, model.config.channels)


def digits(run: Run, model: Model) -> StoredImages:
    """scikit-learn's 1,797 digits: real labels, nothing to download."""
    return StoredImages(run, model, _digits(run, model))


def digits_split(run: Run, model: Model) -> StoredImages:
    """The same, 1,500 to train on, 297 held out."""
    return StoredImages(run, model, *split(_digits(run, model), DIGITS_HELD_OUT))


def cifar10(run: Run, model: Model) -> StoredImages:
    """CIFAR-10 from the folder that `run.data` names."""
    if model.config.channels != CIFAR_CHANNELS:
        raise ValueError(
            f"CIFAR-10 has {CIFAR_CHANNELS} channels: model {model.name!r} takes"
            f" {model.config.channels}"
        )
    return StoredImages(run, model, Cifar10(named_files(run, "folder")[0], model.config.image_size))


def image_folder(run: Run, model: Model) -> StoredImages:
    """Your own images, folder/class/*.png or *.jpg, in the folder that `run.data` names."""
    return StoredImages(
        run,
        model,
        ImageFolder(named_files(run, "folder")[0], model.config.image_size, model.config.channels),
    )


def teacher(run: Run, model: Model) -> StoredImages:
    """Textures labelled by a planted teacher, as many as `TEACHER_SIZES` has for the input."""
    no_files(run)
    train, held_out = TEACHER_SIZES[run.inputs]
    return StoredImages(
        run,
        model,
        *split(
            TaughtImages(train + held_out, model.config.image_size, model.config.channels), held_out
        ),
    )
