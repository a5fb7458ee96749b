"""Bytes that a batch holds on a device in a step, for any number of samples."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MOST = 2**31  # samples of a batch
WRITTEN, RECOMPUTED, GIVEN = "as written", "recomputed", "given"
"""The ways of which a description tells what a batch holds; last, its own arrays alone."""

COMPILED = ", compiled"
"""Follows a way's name where the compiler's graphs tell it."""


class PerBatch(NamedTuple):
    """Bytes of a batch at each moment of a step: `fixed`, and `each` for every sample.

    made: the share of all gradients that backward has made by each moment; their own bytes are
        in neither of the other two.
    """

    fixed: np.ndarray
    each: np.ndarray
    made: np.ndarray

    def of(self, samples: int, gradients: float = 0.0) -> float:
        """Return the bytes of so many samples when they are most.

        gradients: all that backward makes, of which each moment has its share beside the samples'.
        """
        return float((self.fixed + self.each * samples + self.made * gradients).max())

    def most_samples(self, room: float, gradients: float = 0.0) -> int:
        """Return how many samples' bytes, and gradients, are in `room` at every moment; 0: not
        one's.
        """
        if self.of(1, gradients) > room:
            return 0
        grows = self.each > 0
        left = room - self.fixed[grows] - self.made[grows] * gradients
        return int((left / self.each[grows]).min(initial=MOST))


def through(
    few: int,
    low: Sequence[int],
    more: int,
    high: Sequence[int],
    made: Sequence[float] | None = None,
) -> PerBatch:
    """Return what any number of samples holds, from the bytes of two, moment by moment; where their
    moments do not match, from the most of each, and with one number, all as the samples' own.

    made: the share of all gradients that is there at each moment; unless it is known, none is:
        they come as evenly as the rest goes.
    """
    if len(low) != len(high):
        low, high, made = [max(low)], [max(high)], None
    first, second = np.array(low, dtype=float), np.array(high, dtype=float)
    shares = np.zeros(len(high)) if made is None else np.array(made, dtype=float)
    if more == few:
        return PerBatch(np.zeros(len(high)), second / more, shares)
    each = np.maximum(0.0, (second - first) / (more - few))
    return PerBatch(np.maximum(0.0, second - each * more), each, shares)


def lines_of(found: PerBatch) -> list[tuple[float, ...]]:
    """Return (bytes, bytes of each sample, share of the gradients) of the moments that may be the
    fullest of some batch.
    """
    kept: list[tuple[float, ...]] = []
    moments = {*zip(found.each.tolist(), found.fixed.tolist(), found.made.tolist(), strict=True)}
    for each, fixed, made in sorted(moments, reverse=True):
        if not any(fixed <= other[0] and made <= other[2] for other in kept):
            kept.append((fixed, each, made))
    return kept


def per_batch(lines: Sequence[Sequence[float]]) -> PerBatch:
    """Return what `lines_of` was made of, as far as it matters; lines of before tell no share."""
    fixed, each, made = np.array([[*line, 0.0][:3] for line in lines], dtype=float).T
    return PerBatch(fixed, each, made)
