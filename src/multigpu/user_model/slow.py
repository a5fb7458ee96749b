"""The rank that the others wait for: from steps in which no rank waits for another."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from multigpu.records.record import Record

SLOWER = 1.1
"""From this factor on over the others' median a rank is called slow, if every Record says so."""


class SlowRank(NamedTuple):
    """A rank, what its step takes longer than the others' (s; each Record's), and who says so."""

    rank: int
    excess_s: tuple[float, ...]
    known_by: str


def slowest_of(times_s: Sequence[Sequence[float]]) -> tuple[int, float] | None:
    """The rank ([rank][step]) whose steps are longer than those of the others, and by how much in
    the median (s); None: none stands out, in the median and in most of its steps.
    """
    if len(times_s) < 2 or not all(times_s):
        return None
    medians = [median(times) for times in times_s]
    rank = int(np.argmax(medians))
    others = [time for other, times in enumerate(times_s) if other != rank for time in times]
    usual_s = median(medians[other] for other in range(len(medians)) if other != rank)
    apart = np.quantile(times_s[rank], 0.25) > np.quantile(others, 0.75)
    return (rank, medians[rank] - usual_s) if apart and medians[rank] > SLOWER * usual_s else None


def own_steps(record: Record) -> list[list[float]]:
    """[rank][timed step]: seconds of a step of each rank; on a CPU without what it waited for its
    batch, which the host's clock sees. Empty where all ranks share one clock.
    """
    measured, first = record.measurement, record.run.warmup_steps
    if measured is None or measured.step_clock != "device" or record.run.processes == "one":
        return []
    steps = [list(times[first:]) for times in measured.step_time_s]
    if record.run.device_type != "cpu" or len(measured.input_wait_s) != len(steps):
        return steps
    return [
        [max(0.0, time - wait) for time, wait in zip(own, waits[first:], strict=False)]
        for own, waits in zip(steps, measured.input_wait_s, strict=True)
    ]


def _agreed(told: Sequence[tuple[int, float] | None], known_by: str) -> SlowRank | None:
    ranks = {one[0] for one in told if one}
    if not told or None in told or len(ranks) != 1:
        return None
    return SlowRank(ranks.pop(), tuple(one[1] for one in told if one), known_by)


def by_replicas(records: Sequence[Record]) -> SlowRank | None:
    """Find the slow rank of independent replicas; None: none is slow in all of these Records."""
    told = [slowest_of(own_steps(record)) for record in records]
    return _agreed(told, "independent replicas: its step beside the others'")
