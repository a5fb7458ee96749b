"""What a trace says of a step, as pure functions of the Record's trace: durations, shares, skew, overlap, exposed communication.

Notation: replica r's phase p of a step reaches from s(r, p) to e(r, p), gaps included, all on one clock, in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from multigpu.measure.intervals import Span, coalesced, hull, intersection, length, uncovered, union
from multigpu.measure.trace import PHASES, Phase, StepTrace, TraceSummary

__all__ = [
    "PASSES",
    "SkewParts",
    "coalesced",
    "exposed_communication",
    "exposed_parts",
    "hull",
    "imbalance",
    "intersection",
    "launch_skew",
    "length",
    "overlap",
    "passes_time",
    "phase_times",
    "pure_communication",
    "shares",
    "skew_parts",
    "step_time",
    "steps_of",
    "uncovered",
    "union",
]

PASSES: tuple[Phase, ...] = ("forward", "backward", "forward_backward")
"""The phases in which a replica computes gradients."""


def steps_of(trace: TraceSummary) -> list[list[StepTrace]]:
    """[step][replica]: what every replica did in each traced step."""
    return [list(step) for step in zip(*(replica.steps for replica in trace.replicas), strict=True)]


def phase_times(step: StepTrace) -> dict[Phase, float]:
    """How long each known phase of one replica's step lasted: e(r, p) - s(r, p), s."""
    return {phase: step.phases[phase][1] - step.phases[phase][0] for phase in PHASES if phase in step.phases}


def step_time(replicas: Sequence[StepTrace]) -> float:
    """From the first start to the last end over all replicas, s.

    Consecutive steps may overlap (a replica may begin before another has ended), so these need not add up to the window.
    """
    return max(r.end_s for r in replicas) - min(r.start_s for r in replicas)


def shares(step: StepTrace) -> dict[Phase, float]:
    """Each phase's duration over the replica's own step; they add up to more than 1 where phases overlap."""
    whole = step.end_s - step.start_s
    return {phase: time / whole for phase, time in phase_times(step).items()} if whole > 0 else {}


def overlap(step: StepTrace) -> float:
    """Sum of the phases' durations less their union, s: how much time passed in two phases at once.

    Zero where phases follow each other; with an all-reduce that runs during backward, the time that both ran.
    """
    return sum(phase_times(step).values()) - length(step.phases.values())


def imbalance(values: Sequence[float]) -> float:
    """The largest over the mean, of one quantity of all replicas: 1 where they are equal; NaN without any."""
    return max(values) / fmean(values) if values and fmean(values) else float("nan")


@dataclass(frozen=True)
class SkewParts:
    """What launch skew is made of, s: skew = span - longest."""

    span: float
    longest: float

    @property
    def skew(self) -> float:
        return self.span - self.longest


def passes_time(step: StepTrace) -> float | None:
    """How long a replica was in forward or backward: |[s(f), e(f)] or [s(b), e(b)]|, s; None where neither is known.

    Where the two follow each other, as in PyTorch, this is forward + backward; where an executor lets them overlap, the time
    that both ran counts once.
    """
    spans = [step.phases[phase] for phase in PASSES if phase in step.phases]
    return length(spans) if spans else None


def skew_parts(replicas: Sequence[StepTrace]) -> SkewParts | None:
    """Span and longest passes of one step over all replicas; None unless every replica's forward and backward are known.

    span = max_r e(r, backward) - min_r s(r, forward);  longest = max_r (forward + backward of r).

    If all replicas began together and none paused, the span would be the slowest one's forward + backward, and the skew 0.
    Begun apart by d with equal work w each, they span w + d: the skew is d. It is an upper bound of what starting apart
    costs, since gaps between one replica's forward and its backward lengthen the span and not the passes.
    """
    spans = [[step.phases[phase] for phase in PASSES if phase in step.phases] for step in replicas]
    times = [passes_time(step) for step in replicas]
    whole = all("forward_backward" in step.phases or {"forward", "backward"} <= set(step.phases) for step in replicas)
    if not replicas or not whole:
        return None
    first, last = hull(span for mine in spans for span in mine) or (0.0, 0.0)
    return SkewParts(last - first, max(time for time in times if time is not None))


def launch_skew(replicas: Sequence[StepTrace]) -> float | None:
    """(last end of backward - first start of forward over all replicas) - (longest forward + backward of one replica), s.

    See `skew_parts` for what it means; None where a replica's passes are not known.
    """
    parts = skew_parts(replicas)
    return None if parts is None else parts.skew


def exposed_communication(communication: Sequence[Span], compute: Sequence[Span]) -> float:
    """|communication and not compute| on one device, s: what the device waited for the wire and did nothing else."""
    return uncovered(communication, compute)


def pure_communication(replicas: Sequence[StepTrace]) -> float:
    """The least communication time of a step over its replicas, s.

    A collective's kernel spins until the last replica has come, so its time on the others includes waiting; the one that
    came last waited least, and its time is nearest to the transfer's own.
    """
    return min((r.communication_s for r in replicas), default=float("nan"))


def exposed_parts(replicas: Sequence[StepTrace]) -> tuple[float, float]:
    """(collectives, copies) that a step waited for with nothing computed, s: of the replica that waited least in all.

    The least, because waiting for replicas that started later is in every other one's, and is launch skew already.
    """
    least = min(replicas, key=lambda mine: mine.exposed_s)
    return least.exposed_s - least.exposed_copies_s, least.exposed_copies_s
