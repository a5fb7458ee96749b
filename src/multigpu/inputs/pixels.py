"""From stored pixels to what a model takes: size, channels, scale."""

from __future__ import annotations

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=16)
def _weights(old: int, new: int) -> np.ndarray:
    """How much each of `old` pixels gives to each of `new`, shape (new, old), float32; rows sum to one."""
    centres = (np.arange(new) + 0.5) * old / new - 0.5
    # a triangle as wide as one old or one new pixel, whichever is larger: shrinking averages instead of skipping
    distance = np.abs(np.arange(old) - centres[:, None]) / max(old / new, 1.0)
    weights = np.maximum(0.0, 1.0 - distance)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def resize(images: np.ndarray, size: int) -> np.ndarray:
    """Bilinear, averaging where it shrinks (Pillow's rule): shape (B, C, h, w) to (B, C, size, size), float32."""
    rows, columns = _weights(images.shape[2], size), _weights(images.shape[3], size)
    return np.ascontiguousarray(rows @ images.astype(np.float32) @ columns.T)


def standardise(images: np.ndarray, mean: tuple[float, ...], deviation: tuple[float, ...]) -> np.ndarray:
    """(images - mean) / deviation for each channel of (B, C, h, w), float32."""
    shape = (1, -1, 1, 1)
    centred = images.astype(np.float32) - np.array(mean, dtype=np.float32).reshape(shape)
    return centred / np.array(deviation, dtype=np.float32).reshape(shape)
