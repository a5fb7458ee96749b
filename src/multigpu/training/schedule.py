"""The rate of every step: constant, warmed up (002), or decayed (004's luong10), counted in steps of one device or of N. No framework."""

from __future__ import annotations

from typing import Literal, NamedTuple

Law = Literal["constant", "warmup", "luong10"]

HALVINGS = 10
"""luong10 halves the rate so often in the second half of its steps (tensorflow/nmt, `decay_scheme`)."""


class Schedule(NamedTuple):
    """rate(step) for step 0, 1, ...

    law: "constant"; "warmup": linear from `start` to `peak` over `length` steps, then constant; "luong10": `peak` for the first half
        of `length` steps, then ten halvings at equal distances, the last one holding on.
    start, peak: rates. length: in steps of one device (ignored by "constant").
    pace: one-device steps that one step of all replicas stands for: how far the schedule advances. 1: unaware of the replicas.
    """

    law: Law
    peak: float
    start: float = 0.0
    length: int = 0
    pace: float = 1.0

    def rate(self, step: int) -> float:
        """The rate of `step`."""
        at = step * self.pace
        if self.law == "warmup" and at < self.length:
            return self.start + (self.peak - self.start) * at / self.length
        if self.law == "luong10":
            half = self.length // 2
            every = max(1, (self.length - half) // HALVINGS)
            passed = int((at - half) // every) if at >= half else 0
            return self.peak * 0.5 ** min(passed, HALVINGS)
        return self.peak


def linear_rate(base: float, joined_batch: int, reference_batch: int = 256) -> float:
    """Base k n / 256 (document 002): the rate grows with the joined batch of k replicas of n each."""
    return base * joined_batch / reference_batch
