"""Labelled sets of images: scikit-learn's digits, CIFAR-10's binary files, folders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from multigpu.inputs.files import file_digest, fingerprint

if TYPE_CHECKING:
    from PIL import Image

Taken = TypeVar("Taken")

LAYOUT_VERSION = 1
"""Enters every fingerprint: raise it when the same files come to give other batches."""

CIFAR_SIDE, CIFAR_CHANNELS, CIFAR_CLASSES = 32, 3, 10
CIFAR_RECORD = 1 + CIFAR_CHANNELS * CIFAR_SIDE**2
CIFAR_MEAN, CIFAR_DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
"""Per channel, over the training images scaled to 0 .. 1."""
IMAGENET_MEAN, IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GREY_MEAN, GREY_DEVIATION = (0.449,), (0.226,)
"""The means of ImageNet's three, for models of one channel."""
SUFFIXES = {".png", ".jpg", ".jpeg"}


def decoded(file: Path, take: Callable[[Image.Image], Taken]) -> Taken:
    """Apply `take` to a file's image in 8 bits; a ValueError: it cannot be decoded."""
    from PIL import Image, UnidentifiedImageError

    try:
        if file.is_fifo():
            raise ValueError("it is no file but a pipe")
        with Image.open(file) as picture:
            return take(_eight_bits(picture))
    except MemoryError:
        raise
    except UnidentifiedImageError:  # whose own words say no more
        raise ValueError(f"{file} cannot be decoded as an image") from None
    except Exception as error:  # of many classes, for what is broken in many ways
        raise ValueError(
            f"{file} cannot be decoded as an image: {getattr(error, 'strerror', None) or error}"
        ) from None


def _eight_bits(picture: Image.Image) -> Image.Image:
    """Scale grey pixels of 16 bits to 8, where Pillow would cut off all above 255."""
    from PIL import Image

    if picture.mode != "F" and not picture.mode.startswith("I"):
        return picture
    values = np.asarray(picture)
    if picture.mode == "F" or values.min() < 0 or values.max() >= 1 << 16:
        raise ValueError("its pixels are neither of 8 nor of 16 bits")
    return Image.fromarray(np.round(values * (255 / 65535)).astype(np.uint8))


@lru_cache(maxsize=16)
def _weights(old: int, new: int) -> np.ndarray:
    """How much each of `old` pixels gives to each new one, (new, old), float32, rows sum to 1."""
    centres = (np.arange(new) + 0.5) * old / new - 0.5
    # a triangle as wide as one old or one new pixel, whichever is larger: shrinking averages
    # instead of skipping
    distance = np.abs(np.arange(old) - centres[:, None]) / max(old / new, 1.0)
    weights = np.maximum(0.0, 1.0 - distance)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def resize(images: np.ndarray, size: int) -> np.ndarray:
    """Bilinear, averaging where it shrinks: (B, C, h, w) to (B, C, size, size), float32."""
    rows, columns = _weights(images.shape[2], size), _weights(images.shape[3], size)
    return np.ascontiguousarray(rows @ images.astype(np.float32) @ columns.T)


def standardise(
    images: np.ndarray, mean: tuple[float, ...], deviation: tuple[float, ...]
) -> np.ndarray:
    """(images - mean) / deviation for each channel of (B, C, h, w), float32."""
    shape = (1, -1, 1, 1)
    centred = images.astype(np.float32) - np.array(mean, dtype=np.float32).reshape(shape)
    return centred / np.array(deviation, dtype=np.float32).reshape(shape)


class Pictures(ABC):
    """A labelled data set of which any part can be read. labels: (N,) int64, below `classes`."""

    label: str
    classes: int
    labels: np.ndarray
    fingerprint: str

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def images(self, chosen: np.ndarray) -> np.ndarray:
        """Images (B, C, size, size), float32, as the model takes them."""

    def read(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images, and labels (B,)."""
        return self.images(chosen), self.labels[chosen]


class Digits(Pictures):
    """scikit-learn's 1,797 digits, 8 x 8 grey pixels, scaled to the model's size."""

    label = "digits"
    classes = 10

    def __init__(self, size: int, channels: int) -> None:
        from sklearn.datasets import load_digits

        found = load_digits()
        self._raw = found.images.astype(np.float32)[:, None] / 16
        self.labels = found.target.astype(np.int64)
        self._size, self._channels = size, channels
        self._scale = (float(self._raw.mean()),), (float(self._raw.std()),)
        content = fingerprint(self._raw.tobytes().hex(), self.labels.tolist())
        self.fingerprint = fingerprint(LAYOUT_VERSION, self.label, content)

    def images(self, chosen: np.ndarray) -> np.ndarray:
        grey = resize(standardise(self._raw[chosen], *self._scale), self._size)
        return np.repeat(grey, self._channels, axis=1)


class Cifar10(Pictures):
    """CIFAR-10's data_batch_*.bin: a label byte and 3 x 32 x 32 bytes by colour and row."""

    label = "CIFAR-10"
    classes = CIFAR_CLASSES

    def __init__(self, folder: Path, size: int) -> None:
        files = sorted(folder.glob("data_batch_*.bin"))
        if not files:
            raise ValueError(
                f"{folder} holds no data_batch_*.bin: name the folder with CIFAR-10's binary files"
            )
        parts = []
        for file in files:
            if (size_b := file.stat().st_size) == 0 or size_b % CIFAR_RECORD:
                raise ValueError(
                    f"{file} has {size_b} bytes: CIFAR-10's records take {CIFAR_RECORD} bytes each"
                )
            parts.append(np.fromfile(file, dtype=np.uint8).reshape(-1, CIFAR_RECORD))
            if (worst := parts[-1][:, 0].max()) >= CIFAR_CLASSES:
                raise ValueError(
                    f"{file} has the label {worst}: CIFAR-10's labels are 0 to {CIFAR_CLASSES - 1}"
                )
        self._records, self._size = np.concatenate(parts), size
        self.labels = self._records[:, 0].astype(np.int64)
        self.fingerprint = fingerprint(
            LAYOUT_VERSION, self.label, *(file_digest(file) for file in files)
        )

    def images(self, chosen: np.ndarray) -> np.ndarray:
        images = (
            self._records[chosen, 1:]
            .reshape(-1, CIFAR_CHANNELS, CIFAR_SIDE, CIFAR_SIDE)
            .astype(np.float32)
            / 255
        )
        return resize(standardise(images, CIFAR_MEAN, CIFAR_DEVIATION), self._size)


class ImageFolder(Pictures):
    """folder/class/*.png or *.jpg, classes in alphabetical order; images are decoded when asked
    for, scaled to a square (not cropped) and standardised by ImageNet's means and deviations.
    """

    def __init__(self, folder: Path, size: int, channels: int) -> None:
        if not folder.is_dir():
            raise ValueError(f"image folder {folder} does not exist")
        names = sorted(
            entry.name
            for entry in folder.iterdir()
            if entry.is_dir() and not entry.name.startswith(".")
        )
        found = [
            (file, number)
            for number, name in enumerate(names)
            for file in sorted((folder / name).iterdir())
        ]
        found = [(file, number) for file, number in found if file.suffix.lower() in SUFFIXES]
        if not found:
            raise ValueError(f"image folder {folder} holds no class/image.png or .jpg")
        if channels not in (1, 3):
            raise ValueError(f"images of a folder have 1 or 3 channels: the model takes {channels}")
        self.label, self.classes = f"image folder {folder.name}", len(names)
        self.files = [file for file, _ in found]
        self.labels = np.array([number for _, number in found], dtype=np.int64)
        self._size, self._channels, self._folder = size, channels, folder

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override] # read when it is asked for
        """sha256 over names and contents: a large folder takes as long as one epoch of reading."""
        names = [file.relative_to(self._folder).as_posix() for file in self.files]
        return fingerprint(LAYOUT_VERSION, *names, *(file_digest(file) for file in self.files))

    def _decode(self, file: Path) -> np.ndarray:
        from PIL.Image import Resampling

        mode, size = "RGB" if self._channels == 3 else "L", (self._size, self._size)
        scaled = decoded(
            file, lambda picture: picture.convert(mode).resize(size, Resampling.BILINEAR)
        )
        return np.asarray(scaled, dtype=np.float32).reshape(self._size, self._size, self._channels)

    def images(self, chosen: np.ndarray) -> np.ndarray:
        images = (
            np.stack([self._decode(self.files[item]) for item in chosen]).transpose(0, 3, 1, 2)
            / 255
        )
        if self._channels == 3:
            images = standardise(images, IMAGENET_MEAN, IMAGENET_DEVIATION)
        else:
            images = standardise(images, GREY_MEAN, GREY_DEVIATION)
        return np.ascontiguousarray(images)
