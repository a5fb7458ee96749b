"""What a trace says of a step, as pure functions of the Record's trace: durations, skew, imbalance.

Notation: replica r's phase p of a step reaches from s(r, p) to e(r, p), gaps included, all on one clock, in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from multigpu.measure.intervals import hull, length
from multigpu.measure.trace import PHASES, Phase, StepTrace, TraceSummary

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


def imbalance(values: Sequence[float]) -> float:
    """The largest over the mean, of one quantity of all replicas: 1 where they are equal; NaN without any."""
    return max(values) / fmean(values) if values and fmean(values) else float("nan")


def passes_time(step: StepTrace) -> float | None:
    """How long a replica was in forward or backward: |[s(f), e(f)] or [s(b), e(b)]|, s; None where neither is known.

    Where the two follow each other, as in PyTorch, this is forward + backward; where an executor lets them overlap, the time
    that both ran counts once.
    """
    spans = [step.phases[phase] for phase in PASSES if phase in step.phases]
    return length(spans) if spans else None


def passes_span(replicas: Sequence[StepTrace]) -> float | None:
    """max_r e(r, backward) - min_r s(r, forward), s; None unless every replica's forward and backward are known."""
    whole = all("forward_backward" in step.phases or {"forward", "backward"} <= set(step.phases) for step in replicas)
    span = hull(step.phases[phase] for step in replicas for phase in PASSES if phase in step.phases)
    return span[1] - span[0] if whole and span else None


def launch_skew(replicas: Sequence[StepTrace]) -> float | None:
    """`passes_span` less the longest forward + backward of one replica, s; None where a replica's passes are not known.

    If all replicas began together and none paused, the span would be the slowest one's forward + backward, and the skew 0.
    Begun apart by d with equal work w each, they span w + d: the skew is d. It is an upper bound of what starting apart
    costs, since gaps between one replica's forward and its backward lengthen the span and not the passes.
    """
    span = passes_span(replicas)
    return None if span is None else span - max(time for step in replicas if (time := passes_time(step)) is not None)
