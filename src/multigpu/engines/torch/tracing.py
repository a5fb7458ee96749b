"""A few steps under PyTorch's profiler (kineto), read back as what each device did and in which
phase it was launched: that in whose range on the host the launch lies, found by the correlation id
of both events. All timestamps of a machine are on one clock, the host's real-time clock as kineto
derives it from the processor's counter: six profiles in three processes lay 15 to 26 µs after the
middle of two readings of `time.time_ns` 70 to 115 µs apart, so processes agree to about 10 µs. On
GPUs `launch_lead_s` shows how far host and device differ.
"""

import bisect
import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from multigpu.engines.common.timing import TimedDevice, advance
from multigpu.engines.common.traced import Activity, Host, keep_whole, named_phases, replica_trace
from multigpu.engines.torch.moments import (
    INPUT,
    LAUNCHES,
    STEP,
    layer_times,
    layers_named,
    span_of,
    timelines,
)
from multigpu.records.trace import DEVICE_EVENTS, Kind, Missing, Phase, device_kind, device_of
from multigpu.spec.run import Run

RANGE = re.compile(r"multigpu/(pull|forward|backward|merge|update)(@host)?$")
VIEWS = re.compile(
    r"aten::(as_strided|view|_unsafe_view|t|transpose|permute|expand|select|slice|narrow|detach"
    r"|unsqueeze|squeeze|alias|split\w*|unbind"
    r"|chunk|empty\w*|resolve_\w+|is_\w+|result_type|set_|lift_fresh)$"
)
"""Operations on a CPU that compute nothing."""

GRAPH_LAUNCH = re.compile(r"GraphLaunch")

_NOTHING = contextlib.nullcontext()
_tracing = False


def phase(name: Phase, host: bool = False) -> contextlib.AbstractContextManager[Any]:
    """Mark this phase of the step. host: the host works inside, and not only launches."""
    return record_function(f"multigpu/{name}{'@host' if host else ''}") if _tracing else _NOTHING


def waiting_for_input() -> contextlib.AbstractContextManager[Any]:
    """What the host does inside is waiting for a batch, or handing one over."""
    return record_function(INPUT) if _tracing else _NOTHING


def trace(
    run: Run,
    ranks: Sequence[int],
    step: Callable[[int], Any],
    first: int,
    device: TimedDevice,
    barrier: Callable[[], None],
    model: nn.Module | None = None,
) -> list[dict[str, Any]]:
    """Trace `run.traced_steps` steps after one to warm up: parts of replicas `ranks`, which meet
    before and after. model: one whose layers are told apart, in eager steps of one process a
    device.
    """
    layered = model if run.execution == "eager" and len(ranks) == 1 else None
    global _tracing
    first, cuda = advance(run, step, first), run.device_type == "cuda"
    if "captured" in run.execution:
        # a profiler that leaves and comes back breaks graphs (torch.profiler does the same for
        # inductor's)
        os.environ.update(DISABLE_CUPTI_LAZY_REINIT="1", TEARDOWN_CUPTI="0")
    _tracing = True
    try:
        with (
            layers_named(layered),
            profile(
                activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
            ) as profiler,
        ):
            step(first)
            device.synchronise()
            barrier()
            for index in range(first + 1, first + 1 + run.traced_steps):
                with record_function(STEP):
                    step(index)
            device.synchronise()
            barrier()
    finally:
        _tracing = False
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        written = file.read_bytes()
    keep_whole(run, f"rank{ranks[0]}.json", written)
    events = json.loads(written.decode(errors="replace"))
    parts = [
        read_events(events, rank, cuda, len(ranks) > 1, run.bucket_update == "in_backward")
        for rank in ranks
    ]
    if len(ranks) == 1:
        parts[0] |= {"timelines": [one.model_dump() for one in timelines(events, cuda)]}
    if layered is not None:
        parts[0] |= {"layers": layer_times(events, cuda, layered)}
    return parts


def holder(ranges: Iterable[tuple[int, int, Any]]) -> Callable[[int], Any]:
    """Return what finds the innermost range (start, end, value) that holds a moment."""
    ordered = sorted(ranges, key=lambda r: r[0])
    starts = [start for start, _, _ in ordered]
    return lambda moment: next(
        (
            value
            for start, end, value in reversed(ordered[: bisect.bisect_right(starts, moment)])
            if start <= moment <= end
        ),
        None,
    )


def read_events(
    trace: dict[str, Any],
    rank: int,
    cuda: bool,
    shared: bool = False,
    update_in_backward: bool = False,
) -> dict[str, Any]:
    """One replica's part (see `engines.common.traced`) of a Chrome trace. cuda: of GPUs; else the
    host's operations and gloo's ranges stand for kernels. shared: of several replicas' devices, of
    which this one's is number `rank`. update_in_backward: see `named_phases`.
    """
    span = span_of(trace)
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    marks = [event for event in events if event.get("cat") == "user_annotation"]
    steps = sorted(span(event) for event in marks if event["name"] == STEP)
    step_at = holder((start, end, index) for index, (start, end) in enumerate(steps))
    found = [(*span(event), match) for event in marks if (match := RANGE.match(event["name"]))]
    phase_at = holder((start, end, match[1]) for start, end, match in found)
    host = [
        Host(index, cast(Phase, match[1]), start, end)
        for start, end, match in found
        if match[2] and cuda and (index := step_at(start)) is not None
    ]
    missing: Missing = {}
    if cuda:
        device = [
            event
            for event in events
            if event.get("cat") in DEVICE_EVENTS and (not shared or device_of(event) == rank)
        ]
        launched = {
            event["args"].get("correlation"): event
            for event in events
            if event.get("cat") in LAUNCHES and "args" in event
        }
        activities = []
        leads = []
        for event in device:
            start, end = span(event)
            arguments = event.get("args", {})
            launch = launched.get(arguments.get("correlation"))
            moment = span(launch)[0] if launch else start
            if launch:
                leads.append(start - moment)
            # without its launch an activity is the latest step's that had begun by then
            index = step_at(moment) if launch else _latest(steps, start)
            part, correlation = (
                (phase_at(moment), arguments.get("correlation")) if launch else (None, None)
            )
            size, kernel = int(arguments.get("bytes", 0)), event["cat"] == "kernel"
            kind = device_kind(event)
            activities.append(
                Activity(event["name"], kind, start, end, index, part, correlation, size, kernel)
            )
        if any(GRAPH_LAUNCH.search(event["name"]) for event in launched.values()):
            activities, missing = named_phases(activities, update_in_backward)
        return replica_trace(
            rank, activities, host, steps, "kineto", missing, min(leads, default=None)
        )
    if shared:
        why = (
            "the replicas are one process's tensors on a CPU, where nothing tells whose operation"
            " is whose"
        )
        missing = dict.fromkeys(("pull", "forward", "backward", "merge", "update"), why)
        return replica_trace(rank, [], [], steps, "kineto", missing)
    return replica_trace(
        rank, _host_activities(events, span, step_at, phase_at), [], steps, "kineto", missing
    )


def _host_activities(
    events: list[dict[str, Any]],
    span: Callable[[Any], tuple[int, int]],
    step_at: Callable[[int], Any],
    phase_at: Callable[[int], Any],
) -> list[Activity]:
    """On a CPU: outermost `aten::` operations that compute, and gloo's transfers."""
    activities: list[Activity] = []
    ends: dict[Any, int] = {}
    for event in sorted(events, key=lambda event: (event["ts"], -event.get("dur", 0))):
        name = event["name"]
        if name.startswith("gloo:"):
            kind: Kind = "collective"
        elif event.get("cat") == "cpu_op" and name.startswith("aten::") and not VIEWS.match(name):
            kind = "compute"
        else:
            continue
        start, end = span(event)
        if kind == "compute":
            if start < ends.get(event["tid"], 0):
                continue  # inside another one
            ends[event["tid"]] = end
        step, phase = step_at(start), phase_at(start)
        is_kernel = kind == "compute"
        activities.append(
            Activity(name, kind, start, end, step, phase, len(activities), 0, is_kernel)
        )
    return activities


def _latest(steps: Sequence[tuple[int, int]], moment: int) -> int | None:
    return max((index for index, (start, _) in enumerate(steps) if start <= moment), default=None)
