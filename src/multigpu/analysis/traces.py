"""Traced Runs: what their steps take without a profiler, what a trace says of one, and of what one
replica's step consists.

Replica r's phase p of a step reaches from s(r, p) to e(r, p), gaps included, all on one clock, in
seconds. A traced step of D seconds is taken apart on the replica that waited least for the others
(least exposed communication: what the other ones waited for is in this one's own time). Its device
    was busy for B of them, so idle for D - B:

    D = compute + communication + host_copies + host_work + skew + launching

compute: it computed. communication, host_copies: it did nothing but collectives and copies between
    devices, or copies to or from the host. host_work: idle while the host gathers rows, merges or
    updates and no replica computes. skew: idle for the step's launch skew. launching: idle
    otherwise, while the host launches kernels one by one.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from statistics import median

import pandas as pd

from multigpu.analysis.fields import RUN_FIELDS
from multigpu.placements import find_placement
from multigpu.placements.row import Placement
from multigpu.records.intervals import hull, intersection, length, uncovered
from multigpu.records.record import Record
from multigpu.records.trace import PHASES, Phase, StepTrace, TraceSummary


def timed_step_s(record: Record, paired: bool = False) -> float:
    """Seconds of a measured Run's timed step; of a traced one, of its untraced Records'
    (`with_untraced_steps`): their median, or `paired` that of the same repeat, so that repeats vary
        as they did; else of the steps just before, which earlier profiles may have slowed.
    """
    assert record.measurement
    found = record.measurement.untraced_step_s
    if paired and record.repeat in found:
        return found[record.repeat]
    return median(found.values()) if found else record.measurement.wall_s / record.run.timed_steps


def traced(records: Iterable[Record]) -> Iterator[tuple[Record, TraceSummary]]:
    """The Records that hold a trace, with it."""
    for record in records:
        if record.status == "ok" and record.measurement and record.measurement.trace:
            yield record, record.measurement.trace


def phases_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a traced Run, step and replica: key, step, rank, <phase>_s (NaN where it is not known)
    and what `StepTrace` counts.
    """
    counts = [
        name for name in StepTrace.model_fields if name not in ("phases", "communication", "parts")
    ]
    rows = [
        {"key": record.key, "step": index, "rank": replica.rank}
        | {f"{phase}_s": time for phase, time in phase_times(step).items()}
        | {name: getattr(step, name) for name in counts}
        for record, trace in traced(records)
        for index, replicas in enumerate(steps_of(trace))
        for replica, step in zip(trace.replicas, replicas, strict=True)
    ]
    return pd.DataFrame(
        rows, columns=["key", "step", "rank", *(f"{phase}_s" for phase in PHASES), *counts]
    )


def with_untraced_steps(records: Iterable[Record]) -> list[Record]:
    """The Records, each traced one with its `untraced_step_s`: seconds a step of the untraced
    Records of its Run on its machine, by repeat. A traced Run times steps before it is profiled,
    but on H200s eager ones took 1.3 times as long in the median as untraced ones, up to 2.2 times,
    and those behind the first of a launch longer than the first: PyTorch's profiler leaves CUPTI
    attached, and traced launches were of other occasions; which did how much was not measured. Of
    several lengths of timing the traced Run's counts, or else the longest.
    """
    every = list(records)
    # point -> timed steps -> repeat -> s
    taken: dict[Hashable, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for record in every:
        if record.status == "ok" and record.measurement and not record.run.traced_steps:
            taken[_point(record)][record.run.timed_steps][record.repeat] = timed_step_s(record)
    return [
        _beside(record, taken[_point(record)]) if record.run.traced_steps else record
        for record in every
    ]


def _point(record: Record) -> Hashable:
    """The same for a Run and for that Run under the profiler, however many steps of each were
    timed.
    """
    alike = record.run.model_copy(
        update={"traced_steps": 0, "traced_from": None, "warmup_steps": 1, "timed_steps": 1}
    )
    return record.machine.name, alike.digest, record.framework_version, record.timing_version


def _beside(record: Record, taken: dict[int, dict[int, float]]) -> Record:
    if record.measurement is None or not taken:
        return record
    steps = taken.get(record.run.timed_steps) or taken[max(taken)]
    return record.model_copy(
        update={"measurement": record.measurement.model_copy(update={"untraced_step_s": steps})}
    )


PASSES: tuple[Phase, ...] = ("forward", "backward", "forward_backward")
"""The phases in which a replica computes gradients."""


def steps_of(trace: TraceSummary) -> list[list[StepTrace]]:
    """[step][replica]: what every replica did in each traced step."""
    return [list(step) for step in zip(*(replica.steps for replica in trace.replicas), strict=True)]


def phase_times(step: StepTrace) -> dict[Phase, float]:
    """How long each known phase of one replica's step lasted: e(r, p) - s(r, p), s."""
    return {
        phase: step.phases[phase][1] - step.phases[phase][0]
        for phase in PHASES
        if phase in step.phases
    }


def step_time(replicas: Sequence[StepTrace]) -> float:
    """From the first start to the last end over all replicas, s; consecutive steps may overlap, so
    these need not add up to the window.
    """
    return max(r.end_s for r in replicas) - min(r.start_s for r in replicas)


def passes_time(step: StepTrace) -> float | None:
    """How long a replica was in forward or backward: |[s(f), e(f)] or [s(b), e(b)]|, s, both at
    once counted once; None: unknown.
    """
    spans = [step.phases[phase] for phase in PASSES if phase in step.phases]
    return length(spans) if spans else None


def passes_span(replicas: Sequence[StepTrace]) -> float | None:
    """max_r e(r, backward) - min_r s(r, forward), s; None unless every replica's forward and
    backward are known.
    """
    whole = all(
        "forward_backward" in step.phases or {"forward", "backward"} <= set(step.phases)
        for step in replicas
    )
    span = hull(step.phases[phase] for step in replicas for phase in PASSES if phase in step.phases)
    return span[1] - span[0] if whole and span else None


def launch_skew(replicas: Sequence[StepTrace]) -> float | None:
    """`passes_span` less the longest forward + backward of one replica, s; None where a replica's
    passes are not known. Begun apart by d with equal work w each, they span w + d: the skew is d.
    It is an upper bound of what starting apart costs, since gaps between one replica's forward and
    its backward lengthen the span and not the passes.
    """
    span = passes_span(replicas)
    if span is None:
        return None
    return span - max(time for step in replicas if (time := passes_time(step)) is not None)


PARTS = ("compute", "communication", "host_copies", "host_work", "skew", "launching")

DEVICE_PARTS = ("compute", "communication", "host_copies")
"""Work of the device, which a profiler does not slow."""

SAME_POINT = (
    "machine",
    *(name for name in RUN_FIELDS if name not in ("seed", "warmup_steps", "timed_steps")),
)
"""What a traced Run and a timed one must have in common to speak of one point."""


def host_phases(placement: Placement) -> tuple[str, ...]:
    """The phases in which the host itself works under this placement, instead of launching what a
    device does.
    """
    pulls = ("pull",) if "host" in (placement.variables, placement.embeddings) else ()
    return pulls + (("merge", "update") if placement.update == "host" else ())


def waited_least(replicas: Sequence[StepTrace]) -> StepTrace:
    """The replica with the least exposed communication, which speaks for the step."""
    return min(replicas, key=lambda step: step.exposed_s)


def step_parts(
    replicas: Sequence[StepTrace], phases: Sequence[str] = (), host_share: float = 0.0
) -> dict[str, float]:
    """The parts of one traced step, s; they add up to the step's time (or the device's busy time,
    if that is longer).
    phases: those in which the host works itself (`host_phases`), while no replica is in forward or
        backward: one process that dispatches for all devices launches the passes of one in between
        the pulls of others. host_share: of exposed copies' time, what is the host's.
    """
    mine = waited_least(replicas)
    copies = mine.exposed_copies_s * host_share
    idle = max(0.0, step_time(replicas) - mine.busy_s)
    # one begins apart from nobody
    skew = min(idle, max(0.0, launch_skew(replicas) or 0.0)) if len(replicas) > 1 else 0.0
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
    """The parts of a step that took `timed_s` without the profiler, which slows the host alone: the
    device's parts stay, or shrink.
    """
    device = sum(parts[name] for name in DEVICE_PARTS)
    idle = sum(value for name, value in parts.items() if name not in DEVICE_PARTS)
    left = timed_s - device
    if left <= 0:
        return {
            name: parts[name] * timed_s / device if name in DEVICE_PARTS else 0.0 for name in PARTS
        }
    if idle == 0:
        return {**parts, "launching": left}
    return {name: parts[name] * (1.0 if name in DEVICE_PARTS else left / idle) for name in PARTS}


def causes_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a traced Run: its point, timed_step_s, `PARTS` as `<part>_s` of it, kernels, launches,
    peer_copies_s; medians over steps.
    """
    rows = []
    for record, trace in traced(records):
        run, timed_s, steps = record.run, timed_step_s(record), steps_of(trace)
        phases = host_phases(find_placement(run.placement))
        copied = [
            (copy.kind != "device_to_device", copy.total_s)
            for replica in trace.replicas
            for copy in replica.copies
        ]
        whole = sum(time for _, time in copied)
        share = sum(time for of_host, time in copied if of_host) / whole if whole else 0.0
        each = pd.DataFrame(
            [timed_parts(step_parts(replicas, phases, share), timed_s) for replicas in steps]
        ).median()
        rows.append(
            {name: getattr(run, name) for name in SAME_POINT if name != "machine"}
            | {"key": record.key, "machine": record.machine.name, "timed_step_s": timed_s}
            # medians of parts need not add up
            | {f"{name}_s": each[name] * timed_s / each.sum() for name in PARTS}
            | {
                name: median(getattr(mine, name) for replicas in steps for mine in replicas)
                for name in ("kernels", "launches")
            }
            | {
                "peer_copies_s": median(
                    (1 - share) * waited_least(replicas).exposed_copies_s for replicas in steps
                )
            }
        )
    names = [
        "key",
        *SAME_POINT,
        "timed_step_s",
        *(f"{name}_s" for name in PARTS),
        "kernels",
        "launches",
        "peer_copies_s",
    ]
    return pd.DataFrame(rows, columns=names)
