"""What traces say of a placement inside one model: a row a traced Run, and the table of copies and kernels as nvprof prints it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from multigpu.analysis.document_phases import PROFILE_QUANTITIES, profile_quantities
from multigpu.analysis.fields import RUN_FIELDS
from multigpu.analysis.frame import export
from multigpu.analysis.traces import paired_step_s, steps_of, traced
from multigpu.measure.trace import TraceSummary
from multigpu.record import Record

SPARSE_KERNEL = re.compile(r"UnsortedSegment|embedding_backward|compute_grad_weight|sum_and_scatter|krn_partial", re.IGNORECASE)
"""Kernels that add up the rows' gradients of a table: TensorFlow's, and those of PyTorch's embedding_dense_backward."""

TRACE_QUANTITIES = (
    "timed_step_s",
    "busy_share",
    "busiest_share",
    "copy_share",
    "peer_copies_a_step",
    "step_without_copies_s",
    "sparse_share",
    "sparse_over_next",
    *PROFILE_QUANTITIES,
)
"""Columns of `trace_table` that a claim may compare.

timed_step_s: without a profiler (`traces.paired_step_s`). busy_share, busiest_share: of that time, in which a GPU did anything; mean over
the GPUs, and of the busiest. copy_share: of copies between GPUs in all that GPUs did (nvprof's Time(%)). step_without_copies_s:
timed_step_s less the copies during which the GPU they ran on computed nothing (the GPU with most): at most what copies cost.
sparse_share: of the sparse gradients' kernels in all that GPUs did; sparse_over_next: these over the dearest other kernel.
The rest is what document 000's profile says (`document_phases.PROFILE_QUANTITIES`).
"""


def trace_table(records: Iterable[Record]) -> pd.DataFrame:
    """A row a traced Run: its fields, `TRACE_QUANTITIES` (NaN where the trace has nothing of the kind), and who measured it."""
    rows = [trace_row(record, trace) for record, trace in traced(records)]
    return pd.DataFrame(rows, columns=list(rows[0]) if rows else [*IDENTITY, *RUN_FIELDS, *TRACE_QUANTITIES])


IDENTITY = ("key", "attempt", "status", "launch_id", "machine", "gpu", "timing_version", "framework_version", "input_label", "traced_steps")


def trace_row(record: Record, trace: TraceSummary) -> dict[str, Any]:
    """One traced Run as a row of `trace_table`."""
    run, measured = record.run, record.measurement
    assert measured
    step_s = paired_step_s(record)
    steps = steps_of(trace)
    busy = [fmean(step.busy_s for step in replica.steps) / step_s for replica in trace.replicas]
    exposed = fmean(max(mine.exposed_copies_s for mine in replicas) for replicas in steps)
    device_s = _device_time(trace)
    peer = [copies for replica in trace.replicas for copies in replica.copies if copies.kind == "device_to_device"]
    sparse = sum(kernel.total_s for kernel in trace.kernels if SPARSE_KERNEL.search(kernel.name))
    others = [kernel.total_s for kernel in trace.kernels if not SPARSE_KERNEL.search(kernel.name)]
    who = {name: getattr(record, name) for name in IDENTITY if name not in ("machine", "gpu", "traced_steps")}
    return {
        **who,
        "machine": record.machine.name,
        "gpu": record.machine.gpus[0] if record.machine.gpus else "",
        "traced_steps": run.traced_steps,
        **{name: getattr(run, name) for name in RUN_FIELDS},
        "timed_step_s": step_s,
        "busy_share": fmean(busy) if any(busy) else None,  # a CPU's stand-ins are not told apart
        "busiest_share": max(busy) if any(busy) else None,
        "copy_share": sum(one.total_s for one in peer) / device_s if device_s else None,
        "peer_copies_a_step": sum(one.calls for one in peer) / len(steps),
        "step_without_copies_s": step_s - exposed,
        "sparse_share": sparse / device_s if device_s else None,
        "sparse_over_next": sparse / max(others) if others and sparse else None,
        **profile_quantities(trace),
    }


def _device_time(trace: TraceSummary) -> float | None:
    """All that the devices did, in seconds; None in Records from before it was kept."""
    times = [replica.device_time_s for replica in trace.replicas]
    return None if None in times else sum(one for one in times if one)


COPY_WORDS = {"device_to_device": "[memcpy PtoP]", "host_to_device": "[memcpy HtoD]", "device_to_host": "[memcpy DtoH]"}
SUMMARY = ("time_percent", "time_s", "calls", "average_us", "min_us", "max_us", "operation", "bytes", "calls_a_step")
"""Columns as nvprof's (data/published/003_nvprof.csv), then bytes of all calls (copies only) and calls a step."""


def trace_summary(record: Record) -> pd.DataFrame:
    """One traced Run's copies and dearest kernels over its window, the dearest first, with `SUMMARY`.

    Raises:
        ValueError: the Record holds no trace; the sentence names it.
    """
    trace = record.measurement.trace if record.measurement else None
    if trace is None:
        raise ValueError(f"Record {record.key} holds no trace: choose one of a Run with traced_steps above 0")
    device_s, steps = _device_time(trace), len(trace.replicas[0].steps)

    def row(name: str, total_s: float, calls: int, least: float | None, most: float | None, size: int | None) -> dict[str, Any]:
        return {
            "time_percent": 100 * total_s / device_s if device_s else None,
            "time_s": total_s,
            "calls": calls,
            "average_us": 1e6 * total_s / calls,
            "min_us": None if least is None else 1e6 * least,
            "max_us": None if most is None else 1e6 * most,
            "operation": name,
            "bytes": size,
            "calls_a_step": calls / steps,
        }

    rows = [row(one.name, one.total_s, one.calls, one.min_s, one.max_s, None) for one in trace.kernels]
    for kind, word in COPY_WORDS.items():
        found = [copies for replica in trace.replicas for copies in replica.copies if copies.kind == kind]
        if found:
            total_s, calls, size = (sum(getattr(one, name) for one in found) for name in ("total_s", "calls", "bytes"))
            rows.append(row(word, total_s, calls, min(one.min_s for one in found), max(one.max_s for one in found), size))
    table = pd.DataFrame(rows, columns=list(SUMMARY)).sort_values("time_s", ascending=False, kind="stable", ignore_index=True)
    return table.astype({"bytes": "Int64"})


def window_of(record: Record) -> tuple[int, int]:
    """Numbers of the first and the last traced step among all steps of the Run."""
    run = record.run
    first = run.traced_from if run.traced_from is not None else run.warmup_steps + run.timed_steps + 1
    return first, first + run.traced_steps - 1


def write_trace_summary(record: Record, path: Path | str) -> Path:
    """`trace_summary` as a file (`frame.export`), whose first column is the Record's key and whose next two are the window's steps.

    Raises:
        ValueError: the Record holds no trace, or the file cannot be written so.
    """
    first, last = window_of(record)
    table = trace_summary(record)
    table.insert(0, "key", record.key)
    table.insert(1, "first_step", first)
    table.insert(2, "last_step", last)
    return export(table, path)
