"""Traces of any script by PyTorch's profiler, one file a rank: how long its devices computed, and
what they waited for when they did not.
Parts of a window add up: computing; waiting_for_others and communication, collectives beside which
    nothing is computed; copies that are
as exposed; idle while the host was in a DataLoader (input) or not (host_dispatch). A collective
that all ranks join has travelled only
once the last of them began it: those that began earlier waited. One rank's file alone calls all of
    it communication.
"""

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pandas as pd

from multigpu.engines.common.traced import short_name
from multigpu.records.intervals import Span, hull, intersection, length, uncovered, union
from multigpu.records.trace import DEVICE_EVENTS, device_kind, device_of

CAUSES = ("waiting_for_others", "communication", "copies", "input", "host_dispatch")
OWN = ("copies", "input", "host_dispatch")
"""What a rank loses by its own doing."""
PARTS = ("computing", *CAUSES)
KERNELS = 5

TRY_FIRST = {
    "waiting_for_others": (
        "one rank comes late to every gradient reduction: look at the rank that waits least,"
        " its input, its clocks and its batch"
    ),
    "communication": (
        "send less or hide it: larger batches, DistributedDataParallel's overlap and bucket size,"
        " 16-bit gradients"
    ),
    "copies": (
        "keep data on the device: pin_memory=True, .to(device, non_blocking=True), and no .item()"
        " or .cpu() in every step"
    ),
    "input": (
        "feed it sooner: more DataLoader workers, persistent_workers=True, prefetch_factor, less"
        " work for each sample"
    ),
    "host_dispatch": (
        "launch less: torch.compile or a CUDA graph, larger batches, fused optimizers, fewer and"
        " larger operations"
    ),
    "late": (
        "look at what that rank's host does between launches, at other processes on its cores and"
        " at its clocks"
    ),
    "computing": (
        "the device computes nearly all the time: lower precision, better kernels, or more devices"
    ),
}


@dataclass(frozen=True)
class Device:
    """One device's activity, in ns, each list in the order in which it began; input: when the host
    was in a DataLoader.
    """

    rank: int
    window: Span
    input: list[Span]
    compute: list[Span] = field(default_factory=list)
    collectives: list[Span] = field(default_factory=list)
    copies: list[Span] = field(default_factory=list)
    kernels: list[tuple[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class ScriptTrace:
    """shares: rank -> part -> share of its window. window_s and overlap (of communication that
    computation hides) by rank.
    skew_s: how far apart ranks begin one collective (median; None: they cannot be paired). kernels:
        (name, calls, seconds), longest first.
    """

    shares: dict[int, dict[str, float]]
    window_s: dict[int, float]
    overlap: dict[int, float | None]
    skew_s: float | None
    kernels: list[tuple[str, int, float]]

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
        """The rank that loses a twentieth more by its own doing than any other, one of which waits,
        and its cause; None: no such rank.
        """
        own = {rank: sum(shares[cause] for cause in OWN) for rank, shares in self.shares.items()}
        first, *others = sorted(own, key=lambda rank: own[rank], reverse=True)
        waited = max((self.shares[rank]["waiting_for_others"] for rank in others), default=0.0)
        if not others or own[first] - own[others[0]] < 0.05 or waited < 0.02:
            return None
        return first, max(OWN, key=lambda cause: self.shares[first][cause])


def read_file(path: Path) -> dict[str, Any]:
    """The JSON of a trace, packed by gzip or not; a ValueError where it cannot be read, or is no
    trace.
    """
    try:
        packed = path.read_bytes()
        found = json.loads(gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} is no trace in Chrome's format ({error}): give what"
            " profiler.export_chrome_trace wrote"
        ) from None
    events = found.get("traceEvents") if isinstance(found, dict) else None
    if not isinstance(events, list):
        raise ValueError(
            f"{path} holds no traceEvents: give what profiler.export_chrome_trace wrote"
        )
    return dict(found)


def devices_of(trace: dict[str, Any], rank: int) -> list[Device]:
    """The devices of one file: one, or several that one process drives (these are numbered by
    themselves).
    """
    base = int(trace.get("baseTimeNanoseconds", 0))

    def span(event: dict[str, Any]) -> Span:
        start = base + float(event["ts"]) * 1000
        return start, start + float(event.get("dur", 0)) * 1000

    events = sorted(
        (event for event in trace["traceEvents"] if event.get("ph") == "X"),
        key=lambda event: float(event["ts"]),
    )
    on_host = [
        (str(event.get("name", "")), span(event))
        for event in events
        if event.get("cat") != "gpu_user_annotation"
    ]
    steps = [when for name, when in on_host if name.startswith("ProfilerStep#")]
    feeding = [when for name, when in on_host if name.startswith("enumerate(DataLoader)")]
    by_device: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") in DEVICE_EVENTS:
            by_device[device_of(event) or 0].append(event)
    found = []
    for number, own in sorted(by_device.items()):
        window = hull(steps or map(span, own))
        assert window is not None
        device = Device(rank if len(by_device) == 1 else number, window, feeding)
        kinds = {"compute": device.compute, "collective": device.collectives}
        for event in own:
            start, end = span(event)
            if end > window[0] and start < window[1]:
                inside = max(start, window[0]), min(end, window[1])
                kinds.get(device_kind(event), device.copies).append(inside)
                if event["cat"] == "kernel":
                    device.kernels.append(
                        (short_name(event["name"]), (inside[1] - inside[0]) * 1e-9)
                    )
        found.append(device)
    return found


def shares_of(device: Device, begun: Sequence[float]) -> dict[str, float]:
    """The parts of one device's window, as shares of it. begun: of each collective when the last
    rank began it; empty: not known.
    """
    whole = device.window[1] - device.window[0]
    together = zip(device.collectives, begun, strict=True) if begun else ()
    waiting = uncovered(
        [(start, min(end, max(start, last))) for (start, end), last in together], device.compute
    )
    communicated = uncovered(device.collectives, device.compute) - waiting
    busy = [*device.compute, *device.collectives, *device.copies]
    idle = whole - length(intersection([device.window], busy))
    fed = uncovered(intersection([device.window], device.input), busy)
    parts = {
        "computing": length(device.compute),
        "waiting_for_others": waiting,
        "communication": communicated,
        "copies": uncovered(device.copies, [*device.compute, *device.collectives]),
        "input": fed,
        "host_dispatch": idle - fed,
    }
    return {name: value / whole for name, value in parts.items()}


def explain_trace(paths: Sequence[Path]) -> ScriptTrace:
    """Explain a script by these files, one a rank; a ValueError where a file is no trace, or holds
    nothing that a GPU did.
    """
    devices: list[Device] = []
    for place, path in enumerate(paths):
        trace = read_file(path)
        rank = int((trace.get("distributedInfo") or {}).get("rank", place))
        own = devices_of(trace, rank)
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
        kernels.groupby("name", sort=False)["seconds"].agg(["size", "sum"]).nlargest(KERNELS, "sum")
    )
    overlap = {}
    for device in devices:
        sent = union([*device.collectives, *device.copies])
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
    )


def told(found: ScriptTrace) -> list[str]:
    """The trace in words: two lines that answer, then a row a rank, the skew and the longest
    kernels.
    """
    mean, name = found.mean, found.largest
    most = f"Most of the rest is {name.replace('_', ' ')} ({mean[name]:.0%})."
    most = most if name != "computing" else "No cause takes a twentieth of the time."
    advice = TRY_FIRST[name]
    if found.late:
        rank, cause = found.late
        advice = TRY_FIRST["late" if cause == "host_dispatch" else cause]
        lost = f"{found.shares[rank][cause]:.0%} of its time is lost to {cause.replace('_', ' ')}"
        most = f"Rank {rank} comes late: {lost}, and others wait for it."
    lines = [
        f"The devices compute {mean['computing']:.0%} of the time. {most}",
        f"Try first: {advice}.",
    ]
    lines += [
        "",
        "rank  window  "
        + "  ".join(part.replace("_", " ") for part in PARTS)
        + "  communication hidden",
    ]
    for rank, shares in sorted(found.shares.items()):
        hidden = found.overlap[rank]
        cells = [f"{shares[part]:.1%}".rjust(len(part)) for part in PARTS]
        lines.append(
            f"{rank:4d}  {1e3 * found.window_s[rank]:4.0f}ms  {'  '.join(cells)} "
            f" {'–' if hidden is None else f'{hidden:.0%}'}"
        )
    if found.skew_s is not None:
        lines += ["", f"Ranks begin one collective {1e3 * found.skew_s:.2f} ms apart (median)."]
    elif len(found.shares) == 1 and mean["communication"]:
        lines += [
            "",
            (
                "One rank's trace does not tell waiting for others from communication: give every"
                " rank's file."
            ),
        ]
    lines += [
        "",
        "Longest kernels:",
        *(
            f"{1e3 * seconds:9.2f} ms in {calls} calls  {kernel}"
            for kernel, calls, seconds in found.kernels
        ),
    ]
    return lines
