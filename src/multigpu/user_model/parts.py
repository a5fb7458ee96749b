"""Where a step of a comparison goes: for its batch, for what one device takes, for others that
share the machine or are slow, and for what the placement adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from multigpu.analysis.estimate import Estimate
from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import bounds
from multigpu.analysis.parts import SIX_NAMES, Traced, traced_step
from multigpu.analysis.points import Missing
from multigpu.analysis.statistics import mean_interval
from multigpu.analysis.traces import traced
from multigpu.placements import find_placement
from multigpu.records.record import Record
from multigpu.records.trace import SIX_PARTS
from multigpu.user_model.placed import USUAL, Placed, called, less, no_more
from multigpu.user_model.rates import input_s
from multigpu.user_model.trust import NEAR

if TYPE_CHECKING:
    from multigpu.user_model.result import Result

INPUT = SIX_NAMES["input"]
COMPUTING = "computing, as on one device"
SHARED = "devices share this machine"
MERGING = SIX_NAMES["merging"]
REST = "rest"
SLOW = "waiting for rank {rank}, which is slower"

Row = tuple[str, Estimate, str]
"""A part of a step: its cause, its seconds, and what it is known by."""


def mean_of(values: Sequence[float]) -> Estimate:
    """The mean of some Records' figures with its 95% interval; of one Record without."""
    return Estimate(fmean(values), *mean_interval(values))


def step_of(result: Result, name: str) -> Estimate:
    """A step on batches that are on the device already, s."""
    rate, step_s = result[name].rate, float(result[name].row["step_time_s"])
    return Estimate(
        step_s, step_s * rate.value / rate.high, step_s * rate.value / rate.low, rate.keys
    )


def input_of(result: Result, name: str) -> Estimate | None:
    """Return the seconds by which a step as given is longer than one on batches that are on the
    device already; None where that was not measured, since it is next to nothing.
    """
    batch_s = result.described.batch_s
    paid = [input_s(record, batch_s) for record in result.measured(name)]
    known = [seconds for seconds in paid if seconds is not None]
    if not known:
        return None
    told = mean_of(known)
    return Estimate(told.value, max(0.0, told.low), told.high)


def slow_rank(result: Result, placed: Placed) -> SlowRank | None:
    """The rank that others wait for, of independent replicas in this form; None: of none."""
    alone = called(placed.run.model_copy(update={"placement": "independent"}))
    if placed.run.devices > 1 and alone in result.names:
        return by_replicas(result.measured(alone))
    return None


def traced_of(result: Result, placed: Placed) -> Traced | None:
    """Return the six parts of a placement's step, of the rank that waits most for the others: what
    it takes is what the step takes. None: it was not traced so.

    Input is what was measured apart from any profiler, where it was; the trace tells the others'
    shares of the rest.
    """
    every = [trace for _, trace in traced(result.measured(placed.name, traced=True))]
    waited = input_of(result, placed.name)
    return traced_step(every, float(placed.row["fed_step_s"]), waited.value if waited else None)


def at_bound(result: Result, placed: Placed, computing_s: float) -> str:
    """Say which share of computing arithmetic or memory bound, where their ceilings are known."""
    least = bounds(frame_of(result.measured(placed.name)))[["compute_bound", "memory_bound"]]
    if not computing_s or least.isna().all(axis=None):
        return "trace"
    units = placed.run.batch_size * placed.run.devices
    share = Estimate(units / float(least.min(axis=1).mean()) / computing_s)
    return f"trace; {share:percent} of it is at its arithmetic or memory bound"


def parts(result: Result, placed: Placed) -> pd.DataFrame:
    """Where a step as given goes, in ms with their 95% intervals: cause, ms, ms_low, ms_high,
    known_by; they add up to the step. Missing: one device was not measured.

    Of a placement that was traced, the six parts of its timeline. Else, in this order: what the
    step waits for its batch (the step as given, less one on batches that are on the device
    already); what one device takes; what independent replicas take more, which share this machine
    and nothing else, but what the slowest rank takes more than the others; that; and what the
    placement takes more than all these.
    """
    if found := traced_of(result, placed):
        step = step_of(result, placed.name)
        waited = input_of(result, placed.name)
        shares = {part: step / (step.value / value) for part, value in found.parts.items() if value}
        shares = {**shares, "input": waited} if waited and waited.value else shares
        known_by = {"computing": at_bound(result, placed, found.parts["computing"])}
        return _table(
            [
                (SIX_NAMES[part], shares[part], known_by.get(part, "trace"))
                for part in SIX_PARTS
                if part in shares
            ]
        )
    alone = called(placed.run.model_copy(update={"devices": 1}))
    if alone not in result.names:
        raise Missing(f"{alone} was not measured within the budget: give more of it")
    rows: list[Row] = []
    if waited := input_of(result, placed.name):
        rows.append((INPUT, waited, "the step as given, less one on batches that were ready"))
    if placed.name == alone:
        own = step_of(result, alone)
        rows.append((COMPUTING, own, "one device's step"))
    else:
        rows += _of_several(result, placed, alone)
    return _table(rows)


def _table(rows: Sequence[Row]) -> pd.DataFrame:
    table = pd.DataFrame(
        [(cause, 1e3 * e.value, 1e3 * e.low, 1e3 * e.high, how) for cause, e, how in rows]
    )
    return table.set_axis(["cause", "ms", "ms_low", "ms_high", "known_by"], axis=1)


def _of_several(result: Result, placed: Placed, alone: str) -> list[Row]:
    one, own = step_of(result, alone), step_of(result, placed.name)
    how = "one device's step"
    if one.value > NEAR * own.value:
        how = f"the whole step: one device's is longer ({one:ms})"
    rows: list[Row] = [(COMPUTING, no_more(one, own), how)]
    merges = find_placement(placed.run.placement).reduction != "none"
    slow = slow_rank(result, placed)
    waiting = no_more(mean_of(slow.excess_s), less(own, one)) if slow else None
    rest, told = one, "the step, less one device's"
    if "independent" in result.names and placed.run.execution in USUAL:
        replicas = no_more(step_of(result, "independent"), own)
        shared = less(replicas, one)
        rest = max(replicas, one, key=lambda step: step.value)
        told = "the step, less independent replicas'"
        how = "independent replicas, less one device"
        if slow and waiting:
            waiting = no_more(waiting, shared)
            shared = less(shared, waiting)
            how = f"{how} and what rank {slow.rank} takes longer"
        rows.append((SHARED, shared, how))
        more = less(own, rest)
    else:
        more = less(less(own, rest), waiting) if waiting else less(own, rest)
    if slow and waiting and waiting.value > 0:
        rows.append((SLOW.format(rank=slow.rank), waiting, slow.known_by))
    if not merges:
        return [*rows, (REST, more, told)] if more.value > 0 else rows
    return [*rows, (MERGING, more, told)]


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
