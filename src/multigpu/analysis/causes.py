"""Of what one replica's step consists, from traces: what its device did, and what it waited for when it did nothing.

A traced step of D seconds is taken apart on the replica that waited least for the others (least exposed communication: what
the other ones waited for is in this one's own time). Its device was busy for B of them, so idle for D - B:

    D = compute + communication + host_copies + host_work + skew + launching

compute: it computed. communication, host_copies: it did nothing but collectives and copies between devices, or copies to or
from the host. host_work: idle while the host gathers rows, merges or updates and no replica computes. skew: idle for the
step's launch skew. launching: idle otherwise, while the host launches kernels one by one.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import pandas as pd

from multigpu.analysis.fields import RUN_FIELDS
from multigpu.analysis.traces import PASSES, launch_skew, step_time, steps_of, timed_step_s, traced
from multigpu.measure.intervals import intersection, uncovered
from multigpu.measure.trace import CopyTotals, StepTrace
from multigpu.placements import find_placement
from multigpu.placements.row import Placement
from multigpu.record import Record

PARTS = ("compute", "communication", "host_copies", "host_work", "skew", "launching")

DEVICE_PARTS = ("compute", "communication", "host_copies")
"""Work of the device, which a profiler does not slow."""

SAME_POINT = ("machine", *(name for name in RUN_FIELDS if name not in ("seed", "warmup_steps", "timed_steps")))
"""What a traced Run and a timed one must have in common to speak of one point."""


def host_phases(placement: Placement) -> tuple[str, ...]:
    """The phases in which the host itself works under this placement, instead of launching what a device does."""
    pulls = ("pull",) if "host" in (placement.variables, placement.embeddings) else ()
    return pulls + (("merge", "update") if placement.update == "host" else ())


def waited_least(replicas: Sequence[StepTrace]) -> StepTrace:
    """The replica with the least exposed communication, which speaks for the step."""
    return min(replicas, key=lambda step: step.exposed_s)


def step_parts(replicas: Sequence[StepTrace], phases: Sequence[str] = (), host_share: float = 0.0) -> dict[str, float]:
    """The parts of one traced step, s; they add up to the step's time (or the device's busy time, if that is longer).
    phases: those in which the host works itself (`host_phases`), while no replica is in forward or backward: one process that dispatches
    for all devices launches the passes of one in between the pulls of others. host_share: of exposed copies' time, what is the host's.
    """
    mine = waited_least(replicas)
    copies = mine.exposed_copies_s * host_share
    idle = max(0.0, step_time(replicas) - mine.busy_s)
    skew = min(idle, max(0.0, launch_skew(replicas) or 0.0)) if len(replicas) > 1 else 0.0  # one begins apart from nobody
    passes = [step.phases[phase] for step in replicas for phase in PASSES if phase in step.phases]
    working = [span for phase, span in mine.phases.items() if phase in phases]
    elsewhere = [*passes, *intersection(working, mine.communication)]
    work = min(idle - skew, uncovered(working, elsewhere))
    parts = {
        "compute": mine.busy_s - mine.exposed_s,
        "communication": mine.exposed_s - copies,
        "host_copies": copies,
        "host_work": work,
        "skew": skew,
        "launching": idle - skew - work,
    }
    return {name: max(0.0, value) for name, value in parts.items()}


def timed_parts(parts: Mapping[str, float], timed_s: float) -> dict[str, float]:
    """The parts of a step that took `timed_s` without the profiler, s; they add up to it.
    The profiler slows the host and not the device: the device's parts stay (or shrink to a shorter step), the others share what is left.
    """
    device = sum(parts[name] for name in DEVICE_PARTS)
    idle = sum(value for name, value in parts.items() if name not in DEVICE_PARTS)
    left = timed_s - device
    if left <= 0:
        return {name: parts[name] * timed_s / device if name in DEVICE_PARTS else 0.0 for name in PARTS}
    if idle == 0:
        return {**parts, "launching": left}
    return {name: parts[name] * (1.0 if name in DEVICE_PARTS else left / idle) for name in PARTS}


def host_share_of(copies: Iterable[CopyTotals]) -> float:
    """Of the time of these copies, the share of those to or from the host; 0 without any."""
    times = [(copy.kind != "device_to_device", copy.total_s) for copy in copies]
    whole = sum(time for _, time in times)
    return sum(time for of_host, time in times if of_host) / whole if whole else 0.0


def causes_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a traced Run: its point (`SAME_POINT`), timed_step_s (`traces.timed_step_s`), each of `PARTS` as `<part>_s` of that step,
    kernels and launches a replica and step, peer_copies_s (exposed, between devices). Medians over traced steps.
    """
    rows = []
    for record, trace in traced(records):
        run, timed_s, steps = record.run, timed_step_s(record), steps_of(trace)
        phases = host_phases(find_placement(run.placement))
        share = host_share_of(copy for replica in trace.replicas for copy in replica.copies)
        each = pd.DataFrame([timed_parts(step_parts(replicas, phases, share), timed_s) for replicas in steps]).median()
        rows.append(
            {name: getattr(run, name) for name in SAME_POINT if name != "machine"}
            | {"key": record.key, "machine": record.machine.name, "timed_step_s": timed_s}
            | {f"{name}_s": each[name] * timed_s / each.sum() for name in PARTS}  # medians of parts need not add up
            | {name: median(getattr(mine, name) for replicas in steps for mine in replicas) for name in ("kernels", "launches")}
            | {"peer_copies_s": median((1 - share) * waited_least(replicas).exposed_copies_s for replicas in steps)}
        )
    names = ["key", *SAME_POINT, "timed_step_s", *(f"{name}_s" for name in PARTS), "kernels", "launches", "peer_copies_s"]
    return pd.DataFrame(rows, columns=names)
