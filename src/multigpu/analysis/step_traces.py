"""What traces say of a placement inside one model: a row a traced Run, and the table of copies and kernels as nvprof prints it."""

import math
import re
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from multigpu.analysis.document_phases import PROFILE_QUANTITIES, medians
from multigpu.analysis.fields import RUN_FIELDS
from multigpu.analysis.frame import export, identity
from multigpu.analysis.traces import steps_of, timed_step_s, traced
from multigpu.measure.trace import TraceSummary
from multigpu.record import Record

SPARSE_KERNEL = re.compile(r"UnsortedSegment|embedding_backward|compute_grad_weight|sum_and_scatter|krn_partial", re.IGNORECASE)
"""Kernels that add up the rows' gradients of a table: TensorFlow's, and those of PyTorch's embedding_dense_backward."""

TRACE_QUANTITIES = (
    *("timed_step_s", "busy_share", "busiest_share", "copy_share", "peer_copies_a_step", "step_without_copies_s", "sparse_share"),
    *("sparse_over_next", "copies_exposed", *PROFILE_QUANTITIES),
)
"""Columns of `trace_table` that a claim may compare.
timed_step_s: without a profiler (`traces.timed_step_s`, paired). busy_share, busiest_share: of that time, in which a GPU did anything;
mean over the GPUs, and of the busiest. copy_share: of copies between GPUs in all that GPUs did (nvprof's Time(%)).
step_without_copies_s: timed_step_s less the copies during which the GPU they ran on computed nothing (the GPU with most): at most what
copies cost; copies_exposed: their share in all that it copied. sparse_share: of the sparse gradients' kernels in all that GPUs did;
sparse_over_next: these over the dearest other kernel. The rest is document 000's profile (`PROFILE_QUANTITIES`).
"""

IDENTITY = (
    *("key", "attempt", "status", "measured_at", "launch_id", "machine", "gpu"),
    *("timing_version", "framework_version", "input_label", "traced_steps"),
)


def trace_table(records: Iterable[Record]) -> pd.DataFrame:
    """A row a traced Run: its fields, `TRACE_QUANTITIES` (NaN where the trace has nothing of the kind), and who measured it."""
    rows = [_row(record, trace) for record, trace in traced(records)]
    return pd.DataFrame(rows, columns=[*IDENTITY, *RUN_FIELDS, *TRACE_QUANTITIES])


def _row(record: Record, trace: TraceSummary) -> dict[str, Any]:
    run, steps, device_s, quantities = record.run, steps_of(trace), _device_time(trace), medians(trace)
    step_s = timed_step_s(record, paired=True)
    busy = [fmean(step.busy_s for step in replica.steps) / step_s for replica in trace.replicas]
    exposed = fmean(max(mine.exposed_copies_s for mine in replicas) for replicas in steps)
    copied = max(sum(copies.total_s for copies in replica.copies) for replica in trace.replicas) / len(steps)
    peer = [copies for replica in trace.replicas for copies in replica.copies if copies.kind == "device_to_device"]
    sparse = sum(kernel.total_s for kernel in trace.kernels if SPARSE_KERNEL.search(kernel.name))
    others = [kernel.total_s for kernel in trace.kernels if not SPARSE_KERNEL.search(kernel.name)]
    return {
        **identity(record),
        **{"framework_version": record.framework_version, "traced_steps": run.traced_steps},
        **{name: getattr(run, name) for name in RUN_FIELDS},
        "timed_step_s": step_s,
        "busy_share": fmean(busy) if any(busy) else None,  # a CPU's stand-ins are not told apart
        "busiest_share": max(busy) if any(busy) else None,
        "copy_share": sum(one.total_s for one in peer) / device_s if device_s else None,
        "peer_copies_a_step": sum(one.calls for one in peer) / len(steps),
        "step_without_copies_s": step_s - exposed,
        "copies_exposed": exposed / copied if copied else None,
        "sparse_share": sparse / device_s if device_s else None,
        "sparse_over_next": sparse / max(others) if others and sparse else None,
        **{name: quantities.get(name) for name in PROFILE_QUANTITIES},
    }


def _device_time(trace: TraceSummary) -> float | None:
    """All that the devices did, in seconds; None in Records from before it was kept."""
    times = [replica.device_time_s for replica in trace.replicas]
    return None if None in times else sum(one for one in times if one)


COPY_WORDS = {"device_to_device": "[memcpy PtoP]", "host_to_device": "[memcpy HtoD]", "device_to_host": "[memcpy DtoH]"}
SUMMARY = ("time_percent", "time_s", "calls", "average_us", "min_us", "max_us", "operation", "bytes", "calls_a_step")
"""Columns as nvprof's (data/published/003_nvprof.csv), then bytes of all calls (copies only) and calls a step."""


def trace_summary(record: Record) -> pd.DataFrame:
    """One traced Run's copies and dearest kernels over its window, the dearest first, with `SUMMARY`. ValueError: it holds no trace."""
    trace = record.measurement.trace if record.measurement else None
    if trace is None:
        raise ValueError(f"Record {record.key} holds no trace: choose one of a Run with traced_steps above 0")
    rows = [(one.name, one.total_s, one.calls, one.min_s, one.max_s, None) for one in trace.kernels]
    for kind, word in COPY_WORDS.items():
        if found := [copies for replica in trace.replicas for copies in replica.copies if copies.kind == kind]:
            total_s, calls, size = (sum(getattr(one, name) for one in found) for name in ("total_s", "calls", "bytes"))
            rows.append((word, total_s, calls, min(one.min_s for one in found), max(one.max_s for one in found), size))
    table = pd.DataFrame(rows, columns=["operation", "time_s", "calls", "min_us", "max_us", "bytes"])
    table[["min_us", "max_us"]] = 1e6 * table[["min_us", "max_us"]].astype("float64")
    table = table.assign(
        time_percent=100 * table["time_s"] / (_device_time(trace) or math.nan),
        average_us=1e6 * table["time_s"] / table["calls"],
        calls_a_step=table["calls"] / len(trace.replicas[0].steps),
    )
    return table.sort_values("time_s", ascending=False, kind="stable", ignore_index=True)[list(SUMMARY)].astype({"bytes": "Int64"})


def write_trace_summary(record: Record, path: Path | str) -> Path:
    """`trace_summary` as a file (`frame.export`), with the Record's key and the first and last traced step among all of the Run's."""
    table, run = trace_summary(record), record.run
    first = run.traced_from if run.traced_from is not None else run.warmup_steps + run.timed_steps + 1
    return export(
        table.assign(key=record.key, first_step=first, last_step=first + run.traced_steps - 1)[
            ["key", "first_step", "last_step", *SUMMARY]
        ],
        path,
    )
