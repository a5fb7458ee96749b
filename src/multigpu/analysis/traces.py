"""Traced Runs: what a step of theirs takes without a profiler, and a row a replica and step (`phases_frame`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

import pandas as pd

from multigpu.analysis.phases import phase_times, steps_of
from multigpu.measure.trace import PHASES, StepTrace, TraceSummary
from multigpu.record import Record
from multigpu.run import Run


def timed_step_s(record: Record) -> float:
    """Seconds of a measured Run's timed step; where it is traced, of its untraced Records if there are any (`with_untraced_steps`), else of
    the steps that ran just before.
    """
    assert record.measurement
    found = record.measurement.untraced_step_s
    return median(found.values()) if found else own_step_s(record)


def paired_step_s(record: Record) -> float:
    """As `timed_step_s`, but of the untraced Record of the same repeat if there is one: repeats then vary as they did."""
    assert record.measurement
    return record.measurement.untraced_step_s.get(record.repeat) or timed_step_s(record)


def own_step_s(record: Record) -> float:
    """Seconds of a Record's own timed step; where it is traced, of those just before, which earlier profiles may have slowed."""
    assert record.measurement
    return record.measurement.wall_s / record.run.timed_steps


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


def untraced_digest(run: Run) -> str:
    """The same for a Run and for that Run under the profiler, however many steps of each were timed."""
    return run.model_copy(update={"traced_steps": 0, "traced_from": None, "warmup_steps": 1, "timed_steps": 1}).digest


def with_untraced_steps(records: Iterable[Record]) -> list[Record]:
    """The Records, each traced one with its `untraced_step_s`: seconds a step of the untraced Records of its Run on its machine, by repeat.

    A traced Run times steps before it is profiled, but on H200s eager ones took 1.3 times as long in the median as untraced ones, up to 2.2
    times, and those behind the first of a launch longer than the first: PyTorch's profiler leaves CUPTI attached, and traced launches were
    of other occasions. Which of the two did how much was not measured. Without an untraced Record the Run's own steps are all there is.
    Of several lengths of timing that of the traced Run counts, or else the longest.
    """
    every = list(records)
    taken: dict[tuple[str, str, str, int], dict[int, dict[int, float]]] = {}  # point -> timed steps -> repeat -> seconds
    for record in every:
        if record.status == "ok" and record.measurement and not record.run.traced_steps:
            found = taken.setdefault(_point(record), {}).setdefault(record.run.timed_steps, {})
            found[record.repeat] = own_step_s(record)
    return [_beside(record, taken.get(_point(record), {})) if record.run.traced_steps else record for record in every]


def _point(record: Record) -> tuple[str, str, str, int]:
    return record.machine.name, untraced_digest(record.run), record.framework_version, record.timing_version


def _beside(record: Record, taken: dict[int, dict[int, float]]) -> Record:
    if record.measurement is None or not taken:
        return record
    steps = taken.get(record.run.timed_steps) or taken[max(taken)]
    return record.model_copy(update={"measurement": record.measurement.model_copy(update={"untraced_step_s": steps})})
