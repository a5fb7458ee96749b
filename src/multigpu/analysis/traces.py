"""Traced Runs as tidy frames: a row a replica and step (`phases_frame`), a row a kind of copy (`copies_frame`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any

import pandas as pd

from multigpu.analysis.frame import RUN_FIELDS
from multigpu.analysis.phases import launch_skew, overlap, phase_times, pure_communication, step_time, steps_of
from multigpu.measure.trace import PHASES, TraceSummary
from multigpu.record import Record
from multigpu.run import Run

_WHO: dict[str, str] = {
    "key": "string",
    "repeat": "int64",
    "machine": "string",
    "gpu": "string",
    "unit": "string",
    **{
        name: {"devices": "int64", "batch_size": "int64", "seed": "int64", "sequence_length": "Int64"}.get(name, "string")
        for name in RUN_FIELDS
        if name not in ("warmup_steps", "timed_steps")
    },
    "timed_step_s": "float64",
}
"""Which Run; timed_step_s: without a profiler (see `timed_step_s`)."""

PHASE_COLUMNS: dict[str, str] = {
    **_WHO,
    "rank": "int64",
    "step": "int64",
    **dict.fromkeys(("start_s", "end_s", "host_s"), "float64"),
    **{f"{phase}_{what}": "float64" for phase in PHASES for what in ("start_s", "s")},
    "phases_overlap_s": "float64",
    "kernels": "int64",
    "launches": "int64",
    **dict.fromkeys(
        ("busy_s", "communication_s", "exposed_s", "exposed_copies_s", "traced_step_s", "launch_skew_s", "pure_communication_s"), "float64"
    ),
    "missing": "string",
}
"""<phase>_start_s, <phase>_s: begin and duration. traced_step_s, launch_skew_s, pure_communication_s: of the whole step, the
same in every replica's row. traced_step_s over timed_step_s is what the profiler cost."""

COPY_COLUMNS: dict[str, str] = {
    **_WHO,
    "rank": "int64",
    "kind": "string",
    "calls_a_step": "float64",
    "bytes_a_step": "float64",
    **dict.fromkeys(("total_s", "mean_s", "min_s", "max_s"), "float64"),
}


def timed_step_s(record: Record) -> float:
    """Seconds of a measured Run's timed step; where it is traced, of its untraced Records if there are any (`reading`), else of the steps
    that ran just before.
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


def _who(record: Record) -> dict[str, Any]:
    assert record.measurement
    run = record.run
    return {
        **{name: getattr(run, name) for name in RUN_FIELDS},
        "key": record.key,
        "repeat": record.repeat,
        "machine": record.machine.name,
        "gpu": record.machine.gpus[0] if record.machine.gpus else "",
        "unit": run.description.unit,
        "timed_step_s": timed_step_s(record),
    }


def _frame(rows: list[dict[str, Any]], columns: dict[str, str]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=dtype) for name, dtype in columns.items()})


def phases_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a traced Run, step and replica, with `PHASE_COLUMNS`; unknown phases are NaN, and `missing` says why."""
    rows = []
    for record, trace in traced(records):
        who = _who(record) | {"missing": "; ".join(sorted({*trace.missing.values()}))}
        for index, replicas in enumerate(steps_of(trace)):
            whole = {
                "step": index,
                "traced_step_s": step_time(replicas),
                "launch_skew_s": launch_skew(replicas),
                "pure_communication_s": pure_communication(replicas),
            }
            for replica, step in zip(trace.replicas, replicas, strict=True):
                times = phase_times(step)
                row: dict[str, Any] = {**who, **whole, "rank": replica.rank, "phases_overlap_s": overlap(step)}
                row |= {name: getattr(step, name) for name in PHASE_COLUMNS if name in type(step).model_fields}
                for phase, time in times.items():
                    row |= {f"{phase}_start_s": step.phases[phase][0], f"{phase}_s": time}
                rows.append(row)
    return _frame(rows, PHASE_COLUMNS)


def copies_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a traced Run, replica and kind of copy, with `COPY_COLUMNS`; times are of single copies, total_s of all traced steps."""
    rows = []
    for record, trace in traced(records):
        for replica in trace.replicas:
            for copies in replica.copies:
                rows.append(
                    _who(record)
                    | {"rank": replica.rank, "kind": copies.kind, "mean_s": copies.mean_s}
                    | {name: getattr(copies, name) for name in ("total_s", "min_s", "max_s")}
                    | {f"{name}_a_step": getattr(copies, name) / len(replica.steps) for name in ("calls", "bytes")}
                )
    return _frame(rows, COPY_COLUMNS)


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
            found[record.repeat] = record.measurement.wall_s / record.run.timed_steps
    return [_beside(record, taken.get(_point(record), {})) if record.run.traced_steps else record for record in every]


def _point(record: Record) -> tuple[str, str, str, int]:
    return record.machine.name, untraced_digest(record.run), record.framework_version, record.timing_version


def _beside(record: Record, taken: dict[int, dict[int, float]]) -> Record:
    if record.measurement is None or not taken:
        return record
    longest = max(taken)
    steps = taken.get(record.run.timed_steps) or taken[longest]
    return record.model_copy(update={"measurement": record.measurement.model_copy(update={"untraced_step_s": steps})})
