"""Inputs of images that hold a part out: what a model is trained on, and what it is scored on and never sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from multigpu.inputs.hashing import fingerprint
from multigpu.inputs.images import StoredImages
from multigpu.inputs.pictures import Digits, Pictures
from multigpu.inputs.teacher import TaughtImages

if TYPE_CHECKING:
    from multigpu.run import Run
    from multigpu.workloads.base import Model

SPLIT_SEED = 1797
DIGITS_HELD_OUT = 297
TEACHER_SIZES = {"teacher": (50_000, 10_000), "teacher_small": (4_000, 1_000)}
"""Images to train on, images held out; CIFAR-10's numbers, and some for CPUs."""


class Part:
    """Some of a set of pictures, numbered anew."""

    def __init__(self, pictures: Pictures, chosen: np.ndarray, name: str) -> None:
        self._pictures, self._chosen = pictures, chosen
        self.label, self.classes = f"{pictures.label}, {name}", pictures.classes
        self.fingerprint = fingerprint(pictures.fingerprint, name, chosen.tolist())

    def __len__(self) -> int:
        return len(self._chosen)

    def read(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images and labels."""
        return self._pictures.read(self._chosen[chosen])


class SplitImages(StoredImages):
    """A Source over one part of a set of pictures; the other is for scores."""

    def __init__(self, run: Run, model: Model, pictures: Pictures, held_out: int) -> None:
        # one split for all seeds, so that every Run is scored on the same images
        order = np.random.default_rng(SPLIT_SEED).permutation(len(pictures))
        self._held_out = Part(pictures, np.sort(order[:held_out]), f"{held_out} held out")
        super().__init__(run, model, Part(pictures, np.sort(order[held_out:]), f"{len(pictures) - held_out} to train on"))

    def held_out(self) -> Pictures:
        """What no batch ever holds."""
        return self._held_out


def digits_split(run: Run, model: Model) -> SplitImages:
    """scikit-learn's digits: 1,500 to train on, 297 held out.

    Raises:
        ValueError: the Run names files, the model tells fewer than 10 classes apart, or its joined batch exceeds 1,500.
    """
    _no_files(run)
    return SplitImages(run, model, Digits(model.config.image_size, model.config.channels), DIGITS_HELD_OUT)


def _taught(run: Run, model: Model, name: str) -> SplitImages:
    _no_files(run)
    train, held_out = TEACHER_SIZES[name]
    return SplitImages(run, model, TaughtImages(train + held_out, model.config.image_size, model.config.channels), held_out)


def teacher(run: Run, model: Model) -> SplitImages:
    """Textures of the model's size labelled by a planted teacher: 50,000 to train on and 10,000 held out, as CIFAR-10.

    Raises:
        ValueError: as `digits_split`.
    """
    return _taught(run, model, "teacher")


def teacher_small(run: Run, model: Model) -> SplitImages:
    """As `teacher`, 4,000 and 1,000: for CPUs.

    Raises:
        ValueError: as `digits_split`.
    """
    return _taught(run, model, "teacher_small")


def _no_files(run: Run) -> None:
    if run.data is not None:
        raise ValueError(f"inputs {run.inputs!r} reads no files: leave out data, which names {', '.join(run.data)}")
