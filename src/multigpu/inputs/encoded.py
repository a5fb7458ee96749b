"""Encoded images as training reads them: JPEG decoded, a part cropped at random and scaled,
flipped, normalised.

What happens to each image is planned from (seed, epoch, item), the same whoever decodes, and in
both frameworks (whose ways to scale differ in the last bits). Where no images are at hand, files
are made once from a seed, which cost what ImageNet's cost: each is a part of one of scikit-learn's
two photographs, scaled, mirrored, shifted in colour and covered with noise, with one of its digits,
the class, blended in.
"""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from multigpu import paths
from multigpu.inputs.batch import Batch, batch_of_rows
from multigpu.inputs.files import fingerprint, named_files
from multigpu.inputs.images import StoredImages
from multigpu.inputs.pictures import IMAGENET_DEVIATION, IMAGENET_MEAN, ImageFolder, decoded
from multigpu.spec.model import Model
from multigpu.spec.run import Run

if TYPE_CHECKING:
    from PIL.Image import Image

MADE_VERSION = 1
"""Stands in the folder's name: raise it when the same seed comes to give other pictures."""
COUNT = 2048
"""Pictures: eight replicas at 256 images a step see each of them once."""
SIZES = ((500, 375), (500, 333), (375, 500), (400, 400), (640, 480))
"""Width and height: ImageNet's are mostly 500 x 375 or 375 x 500; means 470 x 390, 110 kB."""
NOISE = 8.0
"""Standard deviation of noise in steps of 0 .. 255: files take about ImageNet's bytes a pixel."""


def made_folder(root: Path, count: int = COUNT, seed: int = 0) -> Path:
    """The folder of `count` pictures `<digit>/<number>.jpg`, made once by any process."""
    folder = root / f"made-jpegs-{MADE_VERSION}-{seed}-{count}"
    if folder.is_dir():
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=root) as unfinished:
            make_jpegs(made := Path(unfinished) / "made", count, seed)
            made.rename(folder)
    except OSError as error:
        if folder.is_dir():  # another process was faster
            return folder
        raise ValueError(
            f"JPEG files cannot be written to {root}: {error.strerror}; name your own folder of"
            " images in data"
        ) from None
    return folder


def make_jpegs(folder: Path, count: int, seed: int) -> None:
    """Write `count` pictures; number i depends on the seed and i alone."""
    from PIL import Image
    from sklearn.datasets import load_digits, load_sample_images

    photographs = [Image.fromarray(photograph) for photograph in load_sample_images().images]
    found = load_digits()
    for digit in range(10):
        (folder / str(digit)).mkdir(parents=True)
    # one field of noise, of which every picture takes another part
    noise = (
        np.random.default_rng([seed, MADE_VERSION])
        .normal(0, NOISE, (1024, 1024, 3))
        .astype(np.float32)
    )
    make = partial(_write, folder, seed, photographs, found.images, found.target, noise)
    # Pillow lets go of the interpreter
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(make, range(count)))


def _write(
    folder: Path,
    seed: int,
    photographs: list[Image],
    digits: np.ndarray,
    labels: np.ndarray,
    noise: np.ndarray,
    item: int,
) -> None:
    from PIL import Image, ImageOps

    rng = np.random.default_rng([seed, item])
    width, height = SIZES[rng.integers(len(SIZES))]
    photograph = photographs[rng.integers(len(photographs))]
    share = rng.uniform(0.35, 0.95)
    part = (photograph.width * share, photograph.height * share)
    left = rng.uniform(0, photograph.width - part[0])
    top = rng.uniform(0, photograph.height - part[1])
    picture = photograph.resize(
        (width, height), Image.Resampling.BICUBIC, (left, top, left + part[0], top + part[1])
    )
    if rng.integers(2):
        picture = ImageOps.mirror(picture)
    number = int(rng.integers(len(digits)))
    side = min(width, height)
    digit = Image.fromarray((digits[number] * 15).astype(np.uint8)).resize(
        (side, side), Image.Resampling.BICUBIC
    )
    ink = np.zeros((height, width), dtype=np.float32)
    y, x = (height - side) // 2, (width - side) // 2
    ink[y : y + side, x : x + side] = np.asarray(digit, dtype=np.float32) / 510
    down, across = rng.integers(0, 1024 - height), rng.integers(0, 1024 - width)
    pixels = np.asarray(picture, dtype=np.float32) * rng.uniform(0.8, 1.2, 3).astype(np.float32)
    pixels = (
        pixels * (1 - ink[..., None])
        + 255 * ink[..., None]
        + noise[down : down + height, across : across + width]
    )
    done = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    done.save(folder / str(int(labels[number])) / f"{item:05d}.jpg", quality=90)


CROP_VERSION = 1
"""Enters the fingerprint: raise it when the same files come to give other batches."""
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
"""Share of the image in a crop, and width over height: Szegedy et al. 2014, ImageNet examples."""
Box = tuple[int, int, int, int]
"""Left, top, width, height in pixels."""


def crop_box(width: int, height: int, rng: np.random.Generator) -> Box:
    """A random part of the image; after ten misses the largest square in its middle."""
    for _ in range(10):
        area = width * height * rng.uniform(*AREA)
        ratio = np.exp(rng.uniform(*np.log(RATIO)))
        w, h = round(float(np.sqrt(area * ratio))), round(float(np.sqrt(area / ratio)))
        left, top = rng.uniform(size=2)
        if 0 < w <= width and 0 < h <= height:
            return int(left * (width - w + 1)), int(top * (height - h + 1)), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


@dataclass(frozen=True)
class Example:
    """One image of one epoch: its file, its label, and what seeds its crop and its flip."""

    file: Path
    label: int
    seed: tuple[int, int, int]

    def changes(self, width: int, height: int) -> tuple[Box, bool]:
        rng = np.random.default_rng(self.seed)
        flipped = bool(rng.integers(2))
        return crop_box(width, height, rng), flipped

    def size(self) -> tuple[int, int]:
        return _size(self.file)

    def pixels(self, size: int) -> np.ndarray:
        """The image as the model takes it but for its scale: (size, size, 3), uint8."""
        from PIL.Image import Resampling

        def take(picture: Image) -> np.ndarray:
            (left, top, w, h), flipped = self.changes(*picture.size)
            # cropped first: scaling a box of a larger image would mix in what lies around it
            part = (
                picture.crop((left, top, left + w, top + h))
                .convert("RGB")
                .resize((size, size), Resampling.BILINEAR)
            )
            return np.asarray(part)[:, ::-1] if flipped else np.asarray(part)

        return decoded(self.file, take)


@lru_cache(maxsize=1 << 16)
def _size(file: Path) -> tuple[int, int]:
    return decoded(file, lambda picture: picture.size)


PIXEL_SCALE = tuple(1 / 255 / deviation for deviation in IMAGENET_DEVIATION)
PIXEL_SHIFT = tuple(
    mean / deviation for mean, deviation in zip(IMAGENET_MEAN, IMAGENET_DEVIATION, strict=True)
)
"""A pixel 0 .. 255 times its channel's scale, less its shift: ImageNet's mean and deviation."""


def normalised(pixels: np.ndarray) -> np.ndarray:
    """(B, h, w, 3) of 0 .. 255 as (B, 3, h, w), float32, normalised by ImageNet's law."""
    scale, shift = (
        np.array(numbers, dtype=np.float32).reshape(3, 1, 1)
        for numbers in (PIXEL_SCALE, PIXEL_SHIFT)
    )
    planes = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)).astype(np.float32)
    planes *= scale
    planes -= shift
    return planes


class EncodedImages(StoredImages):
    """A Source over a folder of files, folder/class/*.jpg: in every epoch with crops of its own."""

    def __init__(self, run: Run, model: Model, folder: Path, label: str) -> None:
        if model.config.channels != 3:
            raise ValueError(
                f"JPEG files have 3 channels: model {model.name!r} takes {model.config.channels}"
            )
        self._folder = ImageFolder(folder, model.config.image_size, 3)
        super().__init__(run, model, self._folder)
        self.label = label
        self.size = int(model.config.image_size)
        self._bytes = run.image_dtype is not None

    @property
    def fingerprint(self) -> str:  # type: ignore[override] # as of any folder
        return fingerprint(CROP_VERSION, self._folder.fingerprint)

    def examples(self, step: int, rank: int) -> list[Example]:
        files, labels, epoch = self._folder.files, self._folder.labels, step // self.steps_per_epoch
        return [
            Example(files[item], int(labels[item]), (self._seed, epoch, item))
            for item in self.items(step, rank).tolist()
        ]

    def batch(self, step: int, rank: int) -> Batch:
        examples = self.examples(step, rank)
        pixels = np.stack([example.pixels(self.size) for example in examples])
        images = pixels if self._bytes else normalised(pixels)
        labels = np.array([example.label for example in examples], dtype=np.int64)
        return batch_of_rows(rank, self._sizes, {"images": images, "labels": labels})

    def empty_batch(self, step: int, rank: int) -> Batch:
        """The shard's counts, for an engine that decodes by its own means."""
        return batch_of_rows(
            rank, self._sizes, {"images": np.empty(0, np.float32), "labels": np.empty(0, np.int64)}
        )


def jpeg_folder(run: Run, model: Model) -> EncodedImages:
    """The folder that `run.data` names, or one made from a seed in data/cache."""
    if run.data is None:
        return EncodedImages(run, model, made_folder(paths.CACHE), "JPEG files, made")
    (folder,) = named_files(run, "folder")
    return EncodedImages(run, model, folder, f"JPEG files of {folder.name}")
