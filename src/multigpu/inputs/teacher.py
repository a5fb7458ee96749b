"""Images labelled by a planted teacher: made from a seed, as many as asked for, with a task that a
small network can learn.

An image is a sum of coloured waves of random direction, frequency and phase, and noise: textures.
The teacher is a fixed random network of one convolution (3x3, stride 2), ReLU, the mean over all
places, and one dense layer; the class of an image is the largest of its ten outputs. Outputs are
standardised over the first images, so that no class is empty.
"""

from functools import lru_cache

import numpy as np

from multigpu.inputs.files import fingerprint
from multigpu.inputs.pictures import Pictures

TEACHER_VERSION = 1
"""Enters the fingerprint: raise it when the same seed comes to give other images or labels."""
SEED = 20_177
CLASSES = 10
WAVES = 4
FILTERS = 24
CHUNK = 2000
NOISE = 0.15
LEAST_MARGIN = 0.25
"""Images whose two largest outputs are closer (in sigmas) are left out: a coin's label."""


class Teacher:
    """The planted network for images of `channels` colours, its weights a function of the seed.
    images: the scale of all others.
    """

    def __init__(self, channels: int, images: np.ndarray) -> None:
        draw = np.random.default_rng([SEED, channels])
        self.filters = draw.normal(size=(9 * channels, FILTERS)).astype(np.float32)
        self.filters /= np.linalg.norm(self.filters, axis=0)
        self.dense = draw.normal(size=(FILTERS, CLASSES)).astype(np.float32)
        features = self.features(images)
        self.feature_mean, self.feature_deviation = features.mean(axis=0), features.std(axis=0)
        outputs = self._outputs(features)
        self.mean, self.deviation = outputs.mean(axis=0), outputs.std(axis=0)

    def features(self, images: np.ndarray) -> np.ndarray:
        """(B, C, s, s) -> (B, FILTERS): how strongly each filter answers, over all places."""
        # (B, C, h, w, 3, 3)
        windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(2, 3))[
            :, :, ::2, ::2
        ]
        flat = windows.transpose(0, 2, 3, 1, 4, 5).reshape(len(images), -1, self.filters.shape[0])
        return np.maximum(flat @ self.filters, 0).mean(axis=1)

    def _outputs(self, features: np.ndarray) -> np.ndarray:
        return ((features - self.feature_mean) / self.feature_deviation) @ self.dense

    def outputs(self, images: np.ndarray) -> np.ndarray:
        """(B, C, s, s) -> (B, CLASSES)."""
        return (self._outputs(self.features(images)) - self.mean) / self.deviation


def draw_images(number: int, size: int, channels: int, chunk: int) -> np.ndarray:
    """Textures (number, channels, size, size), float32, mean 0, deviation about 1."""
    draw = np.random.default_rng([SEED, size, channels, chunk])
    angle = draw.uniform(0, np.pi, (number, WAVES, 1, 1))
    turns = draw.uniform(1, 6, (number, WAVES, 1, 1))  # waves across the image
    phase = draw.uniform(0, 2 * np.pi, (number, WAVES, 1, 1))
    place = np.linspace(0, 2 * np.pi, size, dtype=np.float32)
    rows, columns = np.meshgrid(place, place, indexing="ij")
    # (n, WAVES, s, s)
    waves = np.sin(turns * (np.cos(angle) * rows + np.sin(angle) * columns) + phase).astype(
        np.float32
    )
    colours = draw.normal(size=(number, channels, WAVES)).astype(np.float32)
    images = np.einsum("ncw,nwhv->nchv", colours, waves, optimize=True)
    images /= images.std(axis=(1, 2, 3), keepdims=True)
    return images + NOISE * draw.standard_normal(images.shape, dtype=np.float32)


@lru_cache(maxsize=2)
def _draw(count: int, size: int, channels: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Images (count, C, size, size) as bytes, labels (count,), and a hash of both."""
    images = np.empty((count, channels, size, size), dtype=np.uint8)
    labels = np.empty(count, dtype=np.int64)
    teacher, filled, chunk = None, 0, 0
    while filled < count:
        drawn = to_bytes(draw_images(CHUNK, size, channels, chunk))
        seen = from_bytes(drawn)  # what a network will see, rounding included
        teacher = teacher or Teacher(channels, seen)
        outputs = teacher.outputs(seen)
        ordered = np.sort(outputs, axis=1)
        clear = np.flatnonzero(ordered[:, -1] - ordered[:, -2] >= LEAST_MARGIN)[: count - filled]
        images[filled : filled + len(clear)] = drawn[clear]
        labels[filled : filled + len(clear)] = outputs[clear].argmax(axis=1)
        filled, chunk = filled + len(clear), chunk + 1
    return images, labels, fingerprint(TEACHER_VERSION, SEED, count, size, channels)


def to_bytes(images: np.ndarray) -> np.ndarray:
    """Three standard deviations either side, in 255 steps."""
    return np.clip(np.round(images * (127.5 / 3) + 127.5), 0, 255).astype(np.uint8)


def from_bytes(images: np.ndarray) -> np.ndarray:
    """Float32 of mean 0 and deviation about 1, as a model takes them."""
    return (images.astype(np.float32) - 127.5) * np.float32(3 / 127.5)


class TaughtImages(Pictures):
    """`count` labelled textures of one size, kept as bytes, 3 kB a CIFAR-sized one."""

    classes = CLASSES

    def __init__(self, count: int, size: int, channels: int) -> None:
        self.label = f"teacher, {count} images of {size} px"
        self._drawn, self.labels, self.fingerprint = _draw(count, size, channels)

    def images(self, chosen: np.ndarray) -> np.ndarray:
        return from_bytes(self._drawn[chosen])
