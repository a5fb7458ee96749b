"""Traces of any script by PyTorch's profiler, one file a rank: how long its devices computed, and
what they waited for when they did not.
Parts of a window add up: computing; waiting_for_others and communication, collectives beside which
    nothing is computed; copies that are as exposed; idle while the host was in a DataLoader (input)
    or not (host_dispatch). A collective that all ranks join has travelled only once the last of
    them began it: those that began earlier waited. One rank's file alone calls all of it
    communication.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean, median

import pandas as pd

from multigpu.analysis.templates import macros_of
from multigpu.engines.common.traced import short_name
from multigpu.records.intervals import Span, hull, intersection, length, uncovered, union
from multigpu.user_model.stuck import TRY_FIRST
from multigpu.user_model.trace_file import TraceFile, read_trace

CAUSES = ("waiting_for_others", "communication", "copies", "input", "host_dispatch")
OWN = ("copies", "input", "host_dispatch")
"""What a rank loses by its own doing."""
PARTS = ("computing", *CAUSES)
KERNELS = 5

STAGES = re.compile("SendRecv", re.IGNORECASE)
GATHERING = re.compile("AllGather|ReduceScatter", re.IGNORECASE)
"""Of NCCL's kernels: what stages send, and what cut variables are gathered and reduced by."""


@dataclass(frozen=True)
class Device:
    """One device's activity, ns, as it began; input: when the host was in a DataLoader."""

    rank: int
    window: Span
    input: list[Span]
    compute: list[Span] = field(default_factory=list)
    collectives: list[Span] = field(default_factory=list)
    messages: list[Span] = field(default_factory=list)
    gathering: list[Span] = field(default_factory=list)
    copies: list[Span] = field(default_factory=list)
    kernels: list[tuple[str, float]] = field(default_factory=list)
    steps: int = 1


@dataclass(frozen=True)
class ScriptTrace:
    """shares: rank -> part -> share of its window. window_s and overlap (of communication that
    computation hides) by rank.
    steps: profiled. captured: a CUDA graph launched most of it. exposed: shares, means over ranks,
        of messages between stages ("stages") and of "gathering" beside which nothing is computed.
    skew_s: how far apart ranks begin one collective (median; None: they cannot be paired). kernels:
        (name, calls, seconds), longest first.
    """

    shares: dict[int, dict[str, float]]
    window_s: dict[int, float]
    overlap: dict[int, float | None]
    skew_s: float | None
    kernels: list[tuple[str, int, float]]
    steps: int = 1
    captured: bool = False
    exposed: dict[str, float] = field(default_factory=dict)

    @property
    def step_s(self) -> float:
        """The mean window over its steps, s; the window itself where no step is marked."""
        return fmean(self.window_s.values()) / self.steps

    @property
    def advice(self) -> str:
        """The key of what to try first (`TRY_FIRST`)."""
        if self.late:
            return "late" if self.late[1] == "host_dispatch" else self.late[1]
        if self.largest == "host_dispatch" and self.captured:
            return "between_graphs"
        whole = self.mean["communication"] + self.mean["waiting_for_others"]
        if self.largest in ("communication", "waiting_for_others"):
            most = max(self.exposed, key=lambda name: self.exposed[name], default="")
            if most and self.exposed[most] > 0.5 * whole:
                return most
        return self.largest

    @property
    def mean(self) -> dict[str, float]:
        return {part: fmean(shares[part] for shares in self.shares.values()) for part in PARTS}

    @property
    def largest(self) -> str:
        """The cause of most lost time; "computing" where none takes a twentieth."""
        name = max(CAUSES, key=lambda cause: self.mean[cause])
        return name if self.mean[name] >= 0.05 else "computing"

    @property
    def late(self) -> tuple[int, str] | None:
        """The rank that loses 5% more by its own doing than any other, and its cause; or None."""
        own = {rank: sum(shares[cause] for cause in OWN) for rank, shares in self.shares.items()}
        first, *others = sorted(own, key=lambda rank: own[rank], reverse=True)
        waited = max((self.shares[rank]["waiting_for_others"] for rank in others), default=0.0)
        if not others or own[first] - own[others[0]] < 0.05 or waited < 0.02:
            return None
        return first, max(OWN, key=lambda cause: self.shares[first][cause])


said = macros_of("multigpu.user_model", "script_trace.j2", columns=PARTS)


def devices_of(trace: TraceFile, rank: int) -> list[Device]:
    """The devices of one file: one, or several of one process, which have their own numbers."""
    found, shortened = [], cache(short_name)
    for number, own in sorted(trace.by_device.items()):
        window = hull(trace.steps or [(event.start, event.end) for event in own])
        assert window is not None
        if window[1] <= window[0]:
            raise ValueError(
                f"{trace.path} holds steps that take no time: profile a few whole ones"
            )
        device = Device(
            rank if len(trace.by_device) == 1 else number,
            window,
            trace.feeding,
            steps=max(1, len(trace.steps)),
        )
        kinds = {"compute": device.compute, "collective": device.collectives}
        for event in own:
            if event.end <= window[0] or event.start >= window[1]:
                continue
            inside = max(event.start, window[0]), min(event.end, window[1])
            if event.kind == "collective" and STAGES.search(event.name):
                device.messages.append(inside)
            else:
                kinds.get(event.kind, device.copies).append(inside)
                if event.kind == "collective" and GATHERING.search(event.name):
                    device.gathering.append(inside)
            if event.is_kernel:
                device.kernels.append((shortened(event.name), (inside[1] - inside[0]) * 1e-9))
        found.append(device)
    return found


def shares_of(device: Device, begun: Sequence[float]) -> dict[str, float]:
    """The parts of one device's window, as shares. begun: collectives' last beginnings."""
    whole = device.window[1] - device.window[0]
    together = zip(device.collectives, begun, strict=True) if begun else ()
    waiting = uncovered(
        [(start, min(end, max(start, last))) for (start, end), last in together], device.compute
    )
    sent = [*device.collectives, *device.messages]
    communicated = uncovered(sent, device.compute) - waiting
    busy = [*device.compute, *sent, *device.copies]
    idle = whole - length(intersection([device.window], busy))
    fed = uncovered(intersection([device.window], device.input), busy)
    parts = {
        "computing": length(device.compute),
        "waiting_for_others": waiting,
        "communication": communicated,
        "copies": uncovered(device.copies, [*device.compute, *sent]),
        "input": fed,
        "host_dispatch": idle - fed,
    }
    return {name: value / whole for name, value in parts.items()}


def explain_trace(paths: Sequence[Path], most: int = KERNELS) -> ScriptTrace:
    """Explain a script by these files, one a rank; a ValueError where a file is no trace, or holds
    nothing that a GPU did. most: kernels to name.
    """
    devices: list[Device] = []
    replayed = events = 0
    for place, path in enumerate(paths):
        trace = read_trace(path)
        own = devices_of(trace, place if trace.rank is None else trace.rank)
        replayed += trace.replayed
        events += sum(map(len, trace.by_device.values()))
        if not own:
            raise ValueError(
                f"{path} holds nothing that a GPU did: profile with ProfilerActivity.CUDA, and a"
                " few steps after a warm-up"
            )
        devices += own
    if len({device.rank for device in devices}) < len(devices):
        raise ValueError(
            f"two of the {len(devices)} traces are of rank {devices[-1].rank}: give one file a rank"
        )
    same = len(devices) > 1 and len({len(device.collectives) for device in devices}) == 1
    together = list(zip(*(device.collectives for device in devices), strict=True)) if same else []
    begun = [max(start for start, _ in each) for each in together]
    kernels = pd.DataFrame(
        [kernel for device in devices for kernel in device.kernels], columns=["name", "seconds"]
    )
    longest = (
        kernels.groupby("name", sort=False)["seconds"].agg(["size", "sum"]).nlargest(most, "sum")
    )
    overlap = {}
    for device in devices:
        sent = union([*device.collectives, *device.messages, *device.copies])
        overlap[device.rank] = 1 - uncovered(sent, device.compute) / length(sent) if sent else None
    return ScriptTrace(
        shares={device.rank: shares_of(device, begun) for device in devices},
        window_s={device.rank: (device.window[1] - device.window[0]) * 1e-9 for device in devices},
        overlap=overlap,
        skew_s=(
            median(max(s for s, _ in each) - min(s for s, _ in each) for each in together) * 1e-9
            if together
            else None
        ),
        kernels=[
            (str(name), int(calls), float(seconds)) for name, calls, seconds in longest.itertuples()
        ],
        steps=devices[0].steps,
        captured=2 * replayed > events,
        exposed={
            name: fmean(
                uncovered(spans(device), device.compute) / (device.window[1] - device.window[0])
                for device in devices
            )
            for name, spans in (
                ("stages", lambda device: device.messages),
                ("gathering", lambda device: device.gathering),
            )
        },
    )


def told(found: ScriptTrace) -> list[str]:
    """Tell the trace: two lines that answer, a row a rank, the skew and the longest kernels."""
    cells = {
        rank: [f"{shares[part]:.1%}".rjust(len(part)) for part in PARTS]
        for rank, shares in sorted(found.shares.items())
    }
    first = TRY_FIRST["trace"][found.advice]
    return said("told", found=found, mean=found.mean, cells=cells, first=first).split("\n")


def compared(before: ScriptTrace, after: ScriptTrace) -> list[str]:
    """Tell two traces of a script: the change of its step, of each part, and of kernels."""
    steps = [one.step_s for one in (before, after)]
    parts = {
        part: [
            1e3 * one.mean[part] * step_s
            for one, step_s in zip((before, after), steps, strict=True)
        ]
        for part in PARTS
    }
    change = {part: later - earlier for part, (earlier, later) in parts.items()}
    most = max(PARTS, key=lambda part: abs(change[part]))
    kernels: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for place, one in enumerate((before, after)):
        for name, _, seconds in one.kernels:
            kernels[name][place] += 1e3 * seconds / (one.steps * len(one.shares))
    changed = sorted(kernels.items(), key=lambda item: -abs(item[1][1] - item[1][0]))[:KERNELS]
    return said(
        "compared", steps=steps, parts=parts, change=change, most=most, kernels=changed
    ).split("\n")
