"""What traces say of one placement in both frameworks: one row a traced Run, in seconds a step, and its dearest kernels.

TensorFlow's Records that were traced before copies were told from passes call the copy of a table's gradient rows "forward", so
forward may seem to reach to the end of backward in them. Nothing here reads where forward ends: passes reach from the start of
forward to the end of backward.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

import pandas as pd

from multigpu.analysis.frameworks import Way
from multigpu.analysis.traces import copies_frame, own_step_s, phases_frame, traced
from multigpu.reading import study_records
from multigpu.record import Record

SUMMARY = (
    *("key", "placement", "way", "devices", "timed_s", "traced_s", "kernels", "launches", "busy_s", "exposed_s", "computing_s"),
    *("idle_s", "pull_s", "late_s", "passes_s", "tail_s", "host_s", "copied_bytes", "copy_bytes_per_s"),
)
"""The columns of `trace_summary`."""


def traced_of(frame: pd.DataFrame) -> list[Record]:
    """Every traced Record of the frame's machines, from the study's Records."""
    machines = set(frame["machine"])
    return [record for record, _ in traced(study_records()) if record.machine.name in machines]


def every_trace(
    records: Iterable[Record], placement: str, devices: int | None = None, recurrence: str = "fused", model: str = "nmt000"
) -> list[Record]:
    """The traced Records of a model's main job under `placement`, not captured, TensorFlow first, then a process a device, then one.

    Of one way and count the shortest timed step comes first.
    """
    found = [
        record
        for record, _ in traced(records)
        if record.run.model == model
        and record.run.placement == placement
        and record.run.execution in ("eager", "graph", "xla")
        and record.run.inputs == "synthetic"
        and (record.run.batch_size, record.run.scaling) == (BATCHES[model], "weak")
        and (record.run.recurrence or "fused") == recurrence
        and (devices is None or record.run.devices == devices)
    ]
    return sorted(found, key=lambda record: (*_point(record), own_step_s(record), record.key))


BATCHES = {"nmt000": 128, "resnet50_v1.5": 64}
"""Of the job of each model that both frameworks trained."""


def _point(record: Record) -> tuple[str, bool, int, str, str, str]:
    run = record.run
    return (run.framework, run.processes == "one", run.devices, run.execution, run.precision, run.batch_norm or "")


def eager_or_graph(
    records: Iterable[Record], placement: str, devices: int | None = None, recurrence: str = "fused", model: str = "nmt000"
) -> list[Record]:
    """Of every way and count that was traced, the Run of median timed step: one trace a point, whole, so that its parts add up."""
    points: dict[tuple[Any, ...], list[Record]] = {}
    for record in every_trace(records, placement, devices, recurrence, model):
        points.setdefault(_point(record), []).append(record)
    return [own[(len(own) - 1) // 2] for own in points.values()]


def spread_text(records: Iterable[Record], placement: str, devices: int, model: str = "nmt000", names: Collection[str] = ()) -> str:
    """How many Runs of each way (of those named, or all) were traced, and how far their steps lay apart before the profiler began, in words
    ("" without any): a table's steps are of untraced Records or under the profiler, and need not lie between them.
    """
    ways: dict[str, list[float]] = {}
    for record in every_trace(records, placement, devices, model=model):
        if not names or way_of(record).name in names:
            ways.setdefault(way_of(record).name, []).append(1e3 * own_step_s(record))
    if not ways:
        return ""
    parts = [
        f"{name} once" if len(times) == 1 else f"{name} {len(times)} times ({times[0]:.1f} to {times[-1]:.1f} ms)"
        for name, times in ways.items()
    ]
    ranges = any(len(times) > 1 for times in ways.values())
    told = " In brackets, what their own steps took before the profiler began; shown is the Run whose was the median." if ranges else ""
    return f"Traced: {'; '.join(parts)}.{told}"


def step_times_s(records: Iterable[Record]) -> list[float]:
    """Seconds a step of every Record of these Runs without a profiler; of a traced Run that has none, of its steps before the profiler."""
    found = []
    for record in records:
        assert record.measurement
        found += [*record.measurement.untraced_step_s.values()] or [own_step_s(record)]
    return found


def way_of(record: Record) -> Way:
    """How the traced Run was done."""
    run = record.run
    return Way(run.framework, run.processes, run.execution, run.precision, run.batch_norm)


def trace_summary(records: Iterable[Record]) -> pd.DataFrame:
    """A row a traced Record: means over its replicas and steps, seconds a step.

    Returns:
        timed_s: a step without a profiler (`traces.timed_step_s`); traced_s: with it. kernels and launches: of one device.
        busy_s: the device did anything. exposed_s: of that, it waited for communication and computed nothing; computing_s: the rest.
        idle_s: timed_s - busy_s, what a step takes beyond its device's work (busy comes from the traced steps, which the profiler
        slows down on the host and not on the device). pull_s: values and rows on their way to the replica. late_s: how long
        after the first replica's forward the last one's begins. passes_s: from the
        start of forward to the end of backward. tail_s: from the end of the last replica's backward to the end of the step, in
        which merge and update are all that goes on. host_s: in the step's call. copied_bytes: of all devices, a step;
        copy_bytes_per_s: while a copy runs (NaN where nothing is copied, as by NCCL's sends).
    """
    rows: list[dict[str, Any]] = []
    for record in records:
        phases, copies = phases_frame([record]), copies_frame([record])
        back = phases["backward_start_s"] + phases["backward_s"]
        begins = phases.groupby("step")["forward_start_s"]
        ends = phases.assign(back=back).groupby("step").agg(end=("end_s", "max"), back=("back", "max"))
        timed, busy, waiting = (float(phases[name].mean()) for name in ("timed_step_s", "busy_s", "exposed_s"))
        steps = int(phases["step"].nunique())
        moved = float(copies["bytes_a_step"].sum())
        spent = float(copies["total_s"].sum())
        rows.append(
            {
                "key": record.key,
                "placement": record.run.placement,
                "way": way_of(record).name,
                "devices": record.run.devices,
                "timed_s": timed,
                "traced_s": float(phases["traced_step_s"].mean()),
                "kernels": float(phases["kernels"].mean()),
                "launches": float(phases["launches"].mean()),
                "busy_s": busy,
                "exposed_s": waiting,
                "computing_s": busy - waiting,
                "idle_s": timed - busy,
                "pull_s": float(phases["pull_s"].mean()),
                "late_s": float((begins.max() - begins.min()).mean()),
                "passes_s": float((back - phases["forward_start_s"]).mean()),
                "tail_s": float((ends["end"] - ends["back"]).mean()),
                "host_s": float(phases["host_s"].mean()),
                "copied_bytes": moved,
                "copy_bytes_per_s": moved * steps / spent if spent else math.nan,
            }
        )
    return pd.DataFrame(rows, columns=list(SUMMARY))


def top_kernels(record: Record, most: int = 6) -> pd.DataFrame:
    """The dearest kernels of a traced Record: name, calls and seconds of one device in one step, share of the device's busy time."""
    trace = record.measurement.trace if record.measurement else None
    if trace is None:
        raise ValueError(f"Record {record.key} holds no trace: choose one with traced_steps above 0")
    per = len(trace.replicas) * len(trace.replicas[0].steps)
    busy = sum(step.busy_s for replica in trace.replicas for step in replica.steps) / per
    rows = [
        {"kernel": kernel.name, "calls": kernel.calls / per, "time_s": kernel.total_s / per, "share": kernel.total_s / per / busy}
        for kernel in trace.kernels[:most]
    ]
    return pd.DataFrame(rows, columns=["kernel", "calls", "time_s", "share"])


def sound(records: Iterable[Record]) -> pd.DataFrame:
    """Whether each TensorFlow trace can be trusted: a row a Record.

    Returns:
        placement, devices, lead_s (the shortest time from a launch to its kernel over all replicas: negative if clocks disagree),
        unlinked (share of what devices did that no launch was found for), forward_late_s (how far forward's end lies behind
        backward's start, mean over replicas and steps; a part of it is the executor's order, a part the copies named above).
    """
    rows: list[dict[str, Any]] = []
    for record, trace in traced(records):
        if record.run.framework != "tensorflow":
            continue
        leads = [replica.launch_lead_s for replica in trace.replicas if replica.launch_lead_s is not None]
        unlinked = sum(replica.unlinked for replica in trace.replicas)
        launched = sum(step.launches for replica in trace.replicas for step in replica.steps)
        phases = phases_frame([record])
        late = phases["forward_start_s"] + phases["forward_s"] - phases["backward_start_s"]
        rows.append(
            {
                "placement": record.run.placement,
                "devices": record.run.devices,
                "lead_s": min(leads, default=math.nan),
                "unlinked": unlinked / (unlinked + launched) if unlinked + launched else math.nan,
                "forward_late_s": float(late.mean()),
            }
        )
    return pd.DataFrame(rows, columns=["placement", "devices", "lead_s", "unlinked", "forward_late_s"])
