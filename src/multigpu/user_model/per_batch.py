"""Bytes that a batch holds on a device in a step, for any number of samples."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MOST = 2**31  # samples of a batch
WRITTEN, RECOMPUTED = "as written", "recomputed"
"""The ways of which a description tells what a batch holds."""


class PerBatch(NamedTuple):
    """Bytes of a batch at each moment of a step: `fixed`, and `each` for every sample."""

    fixed: np.ndarray
    each: np.ndarray

    def of(self, samples: int) -> float:
        """Return the bytes of so many samples when they are most."""
        return float((self.fixed + self.each * samples).max())

    def most_samples(self, room: float) -> int:
        """Return how many samples' bytes are in `room` at every moment; 0: not one's."""
        if self.of(1) > room:
            return 0
        grows = self.each > 0
        return int(((room - self.fixed[grows]) / self.each[grows]).min(initial=MOST))


def through(few: int, low: Sequence[int], more: int, high: Sequence[int]) -> PerBatch:
    """Return what any number of samples holds, from the bytes of two, moment by moment; where their
    moments do not match, from the most of each, and with one number, all as the samples' own.
    """
    if len(low) != len(high):
        low, high = [max(low)], [max(high)]
    first, second = np.array(low, dtype=float), np.array(high, dtype=float)
    if more == few:
        return PerBatch(np.zeros(1), second.max(keepdims=True) / more)
    each = np.maximum(0.0, (second - first) / (more - few))
    return PerBatch(np.maximum(0.0, second - each * more), each)


def lines_of(found: PerBatch) -> list[tuple[float, float]]:
    """Return (bytes, bytes of each sample) of the moments that may be the fullest of some batch."""
    kept: list[tuple[float, float]] = []
    for each, fixed in sorted(zip(found.each, found.fixed, strict=True), reverse=True):
        if not kept or fixed > kept[-1][0]:
            kept.append((float(fixed), float(each)))
    return kept


def per_batch(lines: Sequence[tuple[float, float]]) -> PerBatch:
    """Return what `lines_of` was made of, as far as it matters."""
    fixed, each = np.array(lines, dtype=float).T
    return PerBatch(fixed, each)
