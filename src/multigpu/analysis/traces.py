"""Traced Runs: what their steps take without a profiler, a row a replica and step, and what a trace says of one.

Notation: replica r's phase p of a step reaches from s(r, p) to e(r, p), gaps included, all on one clock, in seconds.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from statistics import median

import pandas as pd

from multigpu.measure.intervals import hull, length
from multigpu.measure.trace import PHASES, Phase, StepTrace, TraceSummary
from multigpu.record import Record


def timed_step_s(record: Record, paired: bool = False) -> float:
    """Seconds of a measured Run's timed step; of a traced one, of its untraced Records' (`with_untraced_steps`): their median, or `paired`
    that of the same repeat, so that repeats vary as they did; else of the steps just before, which earlier profiles may have slowed.
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
    """A row a traced Run, step and replica: key, step, rank, <phase>_s (NaN where it is not known) and what `StepTrace` counts."""
    counts = [name for name in StepTrace.model_fields if name not in ("phases", "communication")]
    rows = [
        {"key": record.key, "step": index, "rank": replica.rank}
        | {f"{phase}_s": time for phase, time in phase_times(step).items()}
        | {name: getattr(step, name) for name in counts}
        for record, trace in traced(records)
        for index, replicas in enumerate(steps_of(trace))
        for replica, step in zip(trace.replicas, replicas, strict=True)
    ]
    return pd.DataFrame(rows, columns=["key", "step", "rank", *(f"{phase}_s" for phase in PHASES), *counts])


def with_untraced_steps(records: Iterable[Record]) -> list[Record]:
    """The Records, each traced one with its `untraced_step_s`: seconds a step of the untraced Records of its Run on its machine, by repeat.
    A traced Run times steps before it is profiled, but on H200s eager ones took 1.3 times as long in the median as untraced ones, up to 2.2
    times, and those behind the first of a launch longer than the first: PyTorch's profiler leaves CUPTI attached, and traced launches were
    of other occasions; which did how much was not measured. Of several lengths of timing the traced Run's counts, or else the longest.
    """
    every = list(records)
    taken: dict[Hashable, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))  # point -> timed steps -> repeat -> s
    for record in every:
        if record.status == "ok" and record.measurement and not record.run.traced_steps:
            taken[_point(record)][record.run.timed_steps][record.repeat] = timed_step_s(record)
    return [_beside(record, taken[_point(record)]) if record.run.traced_steps else record for record in every]


def _point(record: Record) -> Hashable:
    """The same for a Run and for that Run under the profiler, however many steps of each were timed."""
    alike = record.run.model_copy(update={"traced_steps": 0, "traced_from": None, "warmup_steps": 1, "timed_steps": 1})
    return record.machine.name, alike.digest, record.framework_version, record.timing_version


def _beside(record: Record, taken: dict[int, dict[int, float]]) -> Record:
    if record.measurement is None or not taken:
        return record
    steps = taken.get(record.run.timed_steps) or taken[max(taken)]
    return record.model_copy(update={"measurement": record.measurement.model_copy(update={"untraced_step_s": steps})})


PASSES: tuple[Phase, ...] = ("forward", "backward", "forward_backward")
"""The phases in which a replica computes gradients."""


def steps_of(trace: TraceSummary) -> list[list[StepTrace]]:
    """[step][replica]: what every replica did in each traced step."""
    return [list(step) for step in zip(*(replica.steps for replica in trace.replicas), strict=True)]


def phase_times(step: StepTrace) -> dict[Phase, float]:
    """How long each known phase of one replica's step lasted: e(r, p) - s(r, p), s."""
    return {phase: step.phases[phase][1] - step.phases[phase][0] for phase in PHASES if phase in step.phases}


def step_time(replicas: Sequence[StepTrace]) -> float:
    """From the first start to the last end over all replicas, s; consecutive steps may overlap, so these need not add up to the window."""
    return max(r.end_s for r in replicas) - min(r.start_s for r in replicas)


def passes_time(step: StepTrace) -> float | None:
    """How long a replica was in forward or backward: |[s(f), e(f)] or [s(b), e(b)]|, s, both at once counted once; None: unknown."""
    spans = [step.phases[phase] for phase in PASSES if phase in step.phases]
    return length(spans) if spans else None


def passes_span(replicas: Sequence[StepTrace]) -> float | None:
    """max_r e(r, backward) - min_r s(r, forward), s; None unless every replica's forward and backward are known."""
    whole = all("forward_backward" in step.phases or {"forward", "backward"} <= set(step.phases) for step in replicas)
    span = hull(step.phases[phase] for step in replicas for phase in PASSES if phase in step.phases)
    return span[1] - span[0] if whole and span else None


def launch_skew(replicas: Sequence[StepTrace]) -> float | None:
    """`passes_span` less the longest forward + backward of one replica, s; None where a replica's passes are not known.
    Begun apart by d with equal work w each, they span w + d: the skew is d. It is an upper bound of what starting apart costs, since gaps
    between one replica's forward and its backward lengthen the span and not the passes.
    """
    span = passes_span(replicas)
    return None if span is None else span - max(time for step in replicas if (time := passes_time(step)) is not None)
