"""From the profiler's events to timelines of traced steps and times of a model's layers."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.profiler import record_function

from multigpu.engines.common.timeline import Timeline
from multigpu.records.intervals import Span, intersection, union
from multigpu.records.trace import DEVICE_EVENTS, TOP_KERNELS, device_kind

STEP = "multigpu/step"
INPUT = "multigpu/input"
LAYER = "multigpu/layer/"
LAUNCHES = ("cuda_runtime", "cuda_driver")
MEETING = ("multigpu/merge", "multigpu/pull")
"""Phases in which processes on CPUs exchange tensors, whatever carries them."""

GAP_NS = 1_000_000
"""The host launches, or does something else where no operation begins for longer."""

PAUSE_NS = 100_000
"""A CPU's thread calls operations one by one as long as it pauses no longer."""

CALL_NS = 10_000
"""On a CPU, what calling an operation takes of its time, traced as it is: the rest computes."""

Event = dict[str, Any]


@contextmanager
def layers_named(model: nn.Module | None) -> Iterator[None]:
    """Have the profiler see which layer's forward pass the host is in; of None nothing."""
    opened: list[Any] = []

    def entering(name: str) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            opened.append(record_function(f"{LAYER}{name}"))
            opened[-1].__enter__()

        return enter

    def leave(*_: Any) -> None:
        opened.pop().__exit__(None, None, None)

    handles = []
    for name, part in model.named_modules() if model is not None else ():
        handles.append(part.register_forward_pre_hook(entering(name)))
        handles.append(part.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def span_of(trace: dict[str, Any]) -> Callable[[Event], tuple[int, int]]:
    """Return what gives the start and the end of each of a Chrome trace's events, in ns."""
    base = int(trace.get("baseTimeNanoseconds", 0))

    def span(event: Event) -> tuple[int, int]:
        start = base + round(event["ts"] * 1000)
        return start, start + round(event.get("dur", 0) * 1000)

    return span


def lasting(trace: dict[str, Any]) -> list[Event]:
    """Return a Chrome trace's events that last, in the order of their starts, without the ranges of
    the host that a GPU's line repeats under their names.
    """
    events = [
        event
        for event in trace["traceEvents"]
        if event.get("ph") == "X" and event.get("cat") != "gpu_user_annotation"
    ]
    return sorted(events, key=lambda event: (event["ts"], -event.get("dur", 0)))


def timelines(trace: dict[str, Any], cuda: bool) -> list[Timeline]:
    """Return what one replica did in each traced step; on a CPU its step's thread computes."""
    events = lasting(trace)
    span = span_of(trace)
    steps = [event for event in events if event["name"] == STEP]
    if not steps:
        return []
    thread = steps[0]["tid"]
    own = [event for event in events if event.get("tid") == thread]
    called = [span(event) for event in own if str(event["name"]).startswith("aten::")]
    launches = [span(event) for event in events if event.get("cat") in LAUNCHES]
    host = closed([*called, *launches], GAP_NS)
    computing, calling = list[Span](), list[Span]()
    feeding = [span(event) for event in own if event["name"] == INPUT]
    together: dict[str, list[Span]] = defaultdict(list)
    if cuda:
        device = [event for event in events if event.get("cat") in DEVICE_EVENTS]
        kinds = [(device_kind(event), span(event)) for event in device]
        computing = [each for kind, each in kinds if kind == "compute"]
        together["collectives"] = [each for kind, each in kinds if kind == "collective"]
        together["copies"] = [each for kind, each in kinds if kind == "device_to_device"]
        feeding += [each for kind, each in kinds if kind == "host_to_device"]
    else:
        computing = [(start + CALL_NS, end) for start, end in union(called)]
        computing = [(start, end) for start, end in computing if start < end]
        calling = closed(called, PAUSE_NS)
        for event in events:
            if event["name"] in MEETING or str(event["name"]).startswith("gloo:"):
                together[event["name"]].append(span(event))
    found = list[Timeline]()
    begin = span(steps[0])[0]
    ends = _device_ends(events, span, [span(event) for event in steps]) if cuda else {}
    for index, event in enumerate(steps):
        window = (begin, max(begin, ends.get(index, span(event)[1])))
        found.append(
            Timeline(
                window=window,
                computing=intersection(computing, [window]),
                calling=intersection(calling, [window]),
                collectives={
                    name: begun
                    for name, spans in together.items()
                    if (begun := [each for each in spans if window[0] <= each[0] < window[1]])
                },
                input=intersection(feeding, [window]),
                host=intersection(host, [window]),
            )
        )
        begin = window[1]
    return found


def _device_ends(
    events: Iterable[Event], span: Callable[[Event], tuple[int, int]], steps: Sequence[Span]
) -> dict[int, int]:
    """Return when a device, which may be behind its host, is done with what each step launched."""
    step_of: dict[Any, int] = {}
    ends: dict[int, int] = {}
    for event in events:
        number = event.get("args", {}).get("correlation")
        if event.get("cat") in LAUNCHES:
            moment = span(event)[0]
            for index, (start, end) in enumerate(steps):
                if start <= moment <= end:
                    step_of[number] = index
        elif event.get("cat") in DEVICE_EVENTS and number in step_of:
            index = step_of[number]
            ends[index] = max(ends.get(index, 0), span(event)[1])
    return ends


def closed(spans: Iterable[Span], gap: float) -> list[Span]:
    """Return the union of stretches, with gaps that are no longer than this in between."""
    longer = union((start, end + gap) for start, end in spans)
    return [(start, end - gap) for start, end in longer]


def layer_times(
    trace: dict[str, Any], cuda: bool, model: nn.Module
) -> list[tuple[str, str, float, float]]:
    """Return the dearest layers of a model: name, class, share of its parameters, and seconds over
    all traced steps: forward, backward (told by the library's sequence numbers), and of the update
    what its share of the parameters takes.

    On a CPU seconds are those of the step's thread, pauses included; of GPUs those of kernels.
    """
    events = lasting(trace)
    span = span_of(trace)
    steps = [span(event) for event in events if event["name"] == STEP]
    if not steps:
        return []
    begin, end = steps[0][0], steps[-1][1]
    inside = [event for event in events if begin <= span(event)[0] < end]
    owner, forward = _owners(inside, span)
    times: dict[str, float] = defaultdict(float)
    update = 0.0
    if cuda:
        launches = {
            event["args"].get("correlation"): owner.get(id(event))
            for event in inside
            if event.get("cat") in LAUNCHES and "args" in event
        }
        for event in inside:
            if event.get("cat") in DEVICE_EVENTS:
                name = launches.get(event.get("args", {}).get("correlation"))
                if name is not None:
                    times[name] += event.get("dur", 0) * 1e-6
    else:
        for name, seconds in forward.items():
            times[name] += seconds
        for event in inside:
            if str(event["name"]).startswith("autograd::engine::evaluate_function"):
                if (name := owner.get(id(event))) is not None:
                    times[name] += event.get("dur", 0) * 1e-6
            elif event["name"] == "multigpu/update":
                update += event.get("dur", 0) * 1e-6
    parts = dict(model.named_modules())
    sizes = {
        name: sum(each.numel() for each in part.parameters(recurse=False))
        for name, part in parts.items()
    }
    whole = max(1, sum(sizes.values()))
    for name, size in sizes.items():
        if size:
            times[name] += update * size / whole
    told = [
        (name, type(parts[name]).__name__, sizes[name] / whole, seconds)
        for name, seconds in times.items()
        if name in parts
    ]
    return sorted(told, key=lambda one: -one[3])[:TOP_KERNELS]


def _owners(
    events: list[Event], span: Callable[[Event], tuple[int, int]]
) -> tuple[dict[int, str], dict[str, float]]:
    """Return each event's layer by identity, and each layer's own forward seconds."""
    owner: dict[int, str] = {}
    itself: dict[str, float] = defaultdict(float)
    sequence: dict[int, str] = {}
    stacks: dict[Any, list[tuple[int, str]]] = defaultdict(list)
    for event in events:
        if event.get("ph") != "X" or event.get("cat") in DEVICE_EVENTS:
            continue
        start, end = span(event)
        stack = stacks[event.get("tid")]
        while stack and stack[-1][0] <= start:
            stack.pop()
        name, number = str(event["name"]), event.get("args", {}).get("Sequence number", -1)
        if name.startswith(LAYER):
            seconds = (end - start) * 1e-9
            itself[name.removeprefix(LAYER)] += seconds
            if stack and stack[-1][1].startswith(LAYER):
                itself[stack[-1][1].removeprefix(LAYER)] -= seconds
            stack.append((end, name))
        elif name.startswith("autograd::engine::evaluate_function"):
            if number in sequence:
                stack.append((end, f"{LAYER}{sequence[number]}"))
                owner[id(event)] = sequence[number]
        elif stack:
            owner[id(event)] = stack[-1][1].removeprefix(LAYER)
            if number >= 0:  # of several operations that have it, the last made the node
                sequence[number] = owner[id(event)]
    return owner, itself
