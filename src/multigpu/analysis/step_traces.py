"""Summarise traces of a placement inside one model: document 000's profile of a step, a row a
traced Run, and nvprof's table.

The profile is by the document's own definitions: a phase is from its first operation's start to its
last one's end. Forward ends with the loss and backward begins with its gradient, on each GPU;
computation, merge and update are spans over all GPUs, and a share is one over the sum of the three,
which is more than the step where they overlap.
"""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.boots import named_boots
from multigpu.analysis.fields import RUN_FIELDS, columns
from multigpu.analysis.frame import export, identity
from multigpu.analysis.traces import (
    launch_skew,
    passes_span,
    phase_times,
    steps_of,
    timed_step_s,
    traced,
)
from multigpu.records.intervals import hull
from multigpu.records.record import Record
from multigpu.records.trace import Phase, StepTrace, TraceSummary

PARTS = ("computation", "merge", "update")
"""The spans whose sum the document calls total."""

PROFILE_QUANTITIES = (
    *("forward_s", "backward_s", "backward_over_forward", "forward_imbalance"),
    *("computation_share", "merge_share", "launch_skew_s"),
)
"""Of `step_quantities`, what `step_traces.trace_table` says of a trace and a claim may compare."""


def forward_time(step: StepTrace) -> float | None:
    """How long a replica's forward lasted, s: at most until its backward begins, as older traces
    call later copies so; None: unknown.
    """
    if not {"forward", "backward"} <= set(step.phases):
        return None
    (start, end), (begin, _) = step.phases["forward"], step.phases["backward"]
    return min(end, begin) - start if begin > start else end - start


def _span(replicas: Sequence[StepTrace], phase: Phase) -> float:
    """From the first start of a phase to its last end over all replicas, s; 0 where no replica has
    it.
    """
    first, last = hull(step.phases[phase] for step in replicas if phase in step.phases) or (
        0.0,
        0.0,
    )
    return last - first


def step_quantities(replicas: Sequence[StepTrace]) -> dict[str, float]:
    """Return the quantities that the document gives of one step; nothing where a replica's forward
    or backward is not known. computation_s, merge_s, update_s: spans over all replicas;
    <part>_share: of their sum total_s. launch_skew_s: `traces.launch_skew`.
    forward_s, backward_s: means over replicas. forward_imbalance: the largest over the mean of
        replicas. update_s, and so every share, is NaN where an update begins before its backward
        (Adam's powers of beta need no gradients).
    """
    computation, skew = passes_span(replicas), launch_skew(replicas)
    forward = [time for step in replicas if (time := forward_time(step)) is not None]
    if computation is None or skew is None or len(forward) < len(replicas):
        return {}
    began = [step.phases for step in replicas if {"backward", "update"} <= set(step.phases)]
    early = any(phases["update"][0] < phases["backward"][0] for phases in began)
    update = math.nan if early else _span(replicas, "update")
    spans = dict(zip(PARTS, (computation, _span(replicas, "merge"), update), strict=True))
    total, backward = sum(spans.values()), fmean(phase_times(step)["backward"] for step in replicas)
    return {
        **{f"{part}_s": span for part, span in spans.items()},
        **{f"{part}_share": span / total for part, span in spans.items()},
        "total_s": total,
        "launch_skew_s": skew,
        "forward_s": fmean(forward),
        "backward_s": backward,
        "backward_over_forward": backward / fmean(forward),
        "forward_imbalance": max(forward) / fmean(forward),
    }


def medians(trace: TraceSummary) -> dict[str, float]:
    """`step_quantities` of a trace: medians over its steps, NaN where one is; nothing where a step
    is not known.
    """
    quantities = [step_quantities(replicas) for replicas in steps_of(trace)]
    if all(quantities):
        return {
            name: float(np.median([step[name] for step in quantities])) for name in quantities[0]
        }
    return {}


SPARSE_KERNEL = re.compile(
    r"UnsortedSegment|embedding_backward|compute_grad_weight|sum_and_scatter|krn_partial",
    re.IGNORECASE,
)
"""Kernels that add up a table's rows' gradients: TensorFlow's, embedding_dense_backward's."""

TRACE_QUANTITIES = tuple(columns("traces"))
"""Columns of `trace_table` that a claim may compare."""

IDENTITY = (
    *("key", "attempt", "status", "measured_at", "commit", "launch_id", "boot", "machine", "gpu"),
    *("timing_version", "framework_version", "input_label", "traced_steps"),
)


def trace_table(records: Iterable[Record]) -> pd.DataFrame:
    """A row a traced Run: its fields, `TRACE_QUANTITIES` (NaN where the trace has nothing of the
    kind), and who measured it.
    """
    rows = [_row(record, trace) for record, trace in traced(records)]
    table = pd.DataFrame(rows, columns=[*IDENTITY, *RUN_FIELDS, *TRACE_QUANTITIES])
    return table.assign(boot=named_boots(table))


def _row(record: Record, trace: TraceSummary) -> dict[str, Any]:
    run = record.run
    steps = steps_of(trace)
    device_s = _device_time(trace)
    quantities = medians(trace)
    step_s = timed_step_s(record, paired=True)
    busy = [fmean(step.busy_s for step in replica.steps) / step_s for replica in trace.replicas]
    exposed = fmean(max(mine.exposed_copies_s for mine in replicas) for replicas in steps)
    copied = max(
        sum(copies.total_s for copies in replica.copies) for replica in trace.replicas
    ) / len(steps)
    peer = [
        copies
        for replica in trace.replicas
        for copies in replica.copies
        if copies.kind == "device_to_device"
    ]
    sparse = sum(kernel.total_s for kernel in trace.kernels if SPARSE_KERNEL.search(kernel.name))
    others = [kernel.total_s for kernel in trace.kernels if not SPARSE_KERNEL.search(kernel.name)]
    return {
        **identity(record),
        **{"framework_version": record.framework_version, "traced_steps": run.traced_steps},
        **run.values_of(*RUN_FIELDS),
        "timed_step_s": step_s,
        "busy_share": fmean(busy) if any(busy) else None,  # a CPU's stand-ins are not told apart
        "busiest_share": max(busy) if any(busy) else None,
        "copy_share": sum(copies.total_s for copies in peer) / device_s if device_s else None,
        "peer_copies_a_step": sum(copies.calls for copies in peer) / len(steps),
        "step_without_copies_s": step_s - exposed,
        "copies_exposed": exposed / copied if copied else None,
        "sparse_share": sparse / device_s if device_s else None,
        "sparse_over_next": sparse / max(others) if others and sparse else None,
        **{name: quantities.get(name) for name in PROFILE_QUANTITIES},
    }


def _device_time(trace: TraceSummary) -> float | None:
    """All that the devices did, in seconds; None in Records from before it was kept."""
    times = [replica.device_time_s for replica in trace.replicas]
    return None if None in times else sum(time_s for time_s in times if time_s)


COPY_WORDS = {
    "device_to_device": "[memcpy PtoP]",
    "host_to_device": "[memcpy HtoD]",
    "device_to_host": "[memcpy DtoH]",
}
SUMMARY = tuple(columns("trace_summary"))


def trace_summary(record: Record) -> pd.DataFrame:
    """One traced Run's copies and dearest kernels over its window, the dearest first, with
    `SUMMARY`. ValueError: it holds no trace.
    """
    trace = record.measurement.trace if record.measurement else None
    if trace is None:
        raise ValueError(
            f"Record {record.key} holds no trace: choose one of a Run with traced_steps above 0"
        )
    rows = [
        (kernel.name, kernel.total_s, kernel.calls, kernel.min_s, kernel.max_s, None)
        for kernel in trace.kernels
    ]
    for kind, word in COPY_WORDS.items():
        if moved := [
            copies for replica in trace.replicas for copies in replica.copies if copies.kind == kind
        ]:
            total_s, calls, size = (
                sum(getattr(copies, name) for copies in moved)
                for name in ("total_s", "calls", "bytes")
            )
            least_s = min(copies.min_s for copies in moved)
            most_s = max(copies.max_s for copies in moved)
            rows.append((word, total_s, calls, least_s, most_s, size))
    table = pd.DataFrame(
        rows, columns=["operation", "time_s", "calls", "min_us", "max_us", "bytes"]
    )
    table[["min_us", "max_us"]] = 1e6 * table[["min_us", "max_us"]].astype("float64")
    table = table.assign(
        time_percent=100 * table["time_s"] / (_device_time(trace) or math.nan),
        average_us=1e6 * table["time_s"] / table["calls"],
        calls_a_step=table["calls"] / len(trace.replicas[0].steps),
    )
    return table.sort_values("time_s", ascending=False, kind="stable", ignore_index=True)[
        list(SUMMARY)
    ].astype({"bytes": "Int64"})


def write_trace_summary(record: Record, path: Path | str) -> Path:
    """`trace_summary` as a file (`frame.export`), with the Record's key and the first and last
    traced step among all of the Run's.
    """
    table, run = trace_summary(record), record.run
    first = (
        run.traced_from if run.traced_from is not None else run.warmup_steps + run.timed_steps + 1
    )
    return export(
        table.assign(key=record.key, first_step=first, last_step=first + run.traced_steps - 1)[
            ["key", "first_step", "last_step", *SUMMARY]
        ],
        path,
    )
