"""A folder of JPEG files of ImageNet's sizes, made once from a seed, so that decoding costs what it costs where no images are at hand.

Each picture is a part of one of scikit-learn's two photographs, scaled, mirrored, shifted in colour and covered with noise, with
one of its handwritten digits blended in: the digit is the class. Only decoding and reading are to be learnt from them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

MADE_VERSION = 1
"""Stands in the folder's name: raise it when the same seed comes to give other pictures."""

COUNT = 2048
"""Pictures: eight replicas at 256 images a step see each of them once."""

SIZES = ((500, 375), (500, 333), (375, 500), (400, 400), (640, 480))
"""Width and height. ImageNet's pictures are mostly 500 x 375 or 375 x 500; their mean is about 470 x 390 pixels and 110 kB."""

NOISE = 8.0
"""Standard deviation of the noise in steps of 0 .. 255: files then take about as many bytes a pixel as ImageNet's."""

QUALITY = 90


def made_folder(root: Path, count: int = COUNT, seed: int = 0) -> Path:
    """The folder of `count` pictures below `root`, made if it is not there: `<digit>/<number>.jpg`.

    Several processes may ask at once: each makes its own copy and the first one's stays.

    Raises:
        ValueError: the folder cannot be written; the sentence names it.
    """
    folder = root / f"made-jpegs-{MADE_VERSION}-{seed}-{count}"
    if folder.is_dir():
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=".making-", dir=root))
        try:
            make_jpegs(unfinished, count, seed)
            os.chmod(unfinished, 0o755)
            unfinished.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise ValueError(f"JPEG files cannot be written to {root}: {error.strerror}; name your own folder of images in data") from None
    return folder


def make_jpegs(folder: Path, count: int, seed: int) -> None:
    """Write `count` pictures; number i depends on the seed and i alone."""
    from PIL import Image
    from sklearn.datasets import load_digits, load_sample_images

    photographs = [Image.fromarray(photograph) for photograph in load_sample_images().images]
    found = load_digits()
    for digit in range(10):
        (folder / str(digit)).mkdir()
    # one field of noise, of which every picture takes another part
    noise = np.random.default_rng([seed, MADE_VERSION]).normal(0, NOISE, (1024, 1024, 3)).astype(np.float32)
    make = partial(_write, folder, seed, photographs, found.images, found.target, noise)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:  # Pillow lets go of the interpreter
        list(pool.map(make, range(count)))


def _write(folder: Path, seed: int, photographs: list[Image], digits: np.ndarray, labels: np.ndarray, noise: np.ndarray, item: int) -> None:
    from PIL import Image, ImageOps

    rng = np.random.default_rng([seed, item])
    width, height = SIZES[rng.integers(len(SIZES))]
    photograph = photographs[rng.integers(len(photographs))]
    share = rng.uniform(0.35, 0.95)
    part = (photograph.width * share, photograph.height * share)
    left, top = rng.uniform(0, photograph.width - part[0]), rng.uniform(0, photograph.height - part[1])
    picture = photograph.resize((width, height), Image.Resampling.BICUBIC, (left, top, left + part[0], top + part[1]))
    if rng.integers(2):
        picture = ImageOps.mirror(picture)
    number = int(rng.integers(len(digits)))
    side = min(width, height)
    digit = Image.fromarray((digits[number] * 15).astype(np.uint8)).resize((side, side), Image.Resampling.BICUBIC)
    ink = np.zeros((height, width), dtype=np.float32)
    y, x = (height - side) // 2, (width - side) // 2
    ink[y : y + side, x : x + side] = np.asarray(digit, dtype=np.float32) / 510
    down, across = rng.integers(0, 1024 - height), rng.integers(0, 1024 - width)
    pixels = np.asarray(picture, dtype=np.float32) * rng.uniform(0.8, 1.2, 3).astype(np.float32)
    pixels = pixels * (1 - ink[..., None]) + 255 * ink[..., None] + noise[down : down + height, across : across + width]
    done = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    done.save(folder / str(int(labels[number])) / f"{item:05d}.jpg", quality=QUALITY)
