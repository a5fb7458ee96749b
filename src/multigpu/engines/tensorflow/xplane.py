"""A profile of TensorFlow (an XSpace) read as what each device did and in which phase of the step.
Imports no TensorFlow. A step is one graph, so phases come from its operations' names: towers stand
in name scopes (`graphs.PARTS`), gradients in "gradient_tape". GPUs' planes say which operation
launched a kernel; on CPUs the host's plane holds operations, and the graph says which stand-in ran
them. TensorFlow's executor starts whatever is ready: so a phase reaches over the middle of its
work, STRAY left out at either end, and they overlap.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from multigpu.engines.common.traced import Activity, Host, host_totals, replica_trace
from multigpu.placements.traffic import HOST
from multigpu.records.trace import COPIES, Kind, Missing, Phase
from multigpu.spec.tables import table

STEP = "multigpu_step"
GPU_PLANE = re.compile(r"^/device:GPU:(\d+)$")
NODE = re.compile(r"^([^:]+):(\w+)$")
COPY_KINDS: dict[str, Kind] = {
    "MemcpyH2D": "host_to_device",
    "MemcpyD2H": "device_to_host",
    "MemcpyP2P": "device_to_device",
}
COLLECTIVE = re.compile(r"Collective|NcclAllReduce")
NO_WORK = {row["operation"] for row in table(Path(__file__).with_name("no_work.csv"))}
"""Operations that compute nothing, move nothing, or only contain others."""
STRAY = 0.02  # of a phase's work on one device, the share at either end that may be out of order
NUMBERS = "strided_slice"
"""What cuts an update's numbers out of the step's, long before any gradient is there."""
PASSES = ("forward", "backward", "forward_backward")
# bytes; smaller copies out of a tower's passes are conditions of loops and single numbers, and are
# in no phase
SMALLEST_GRADIENT = 1024
KEPT = "kept"  # the name scope of what a step does beside its phases: statistics, losses, ids


@dataclass(frozen=True)
class Event:
    """One event of a plane, in ns since the profile began."""

    name: str
    start_ns: int
    end_ns: int
    stats: dict[str, Any]


@dataclass(frozen=True)
class Names:
    """The meanings of operations' names. pulls: values and rows travel to the replica. fused:
    forward and backward are one function. tables: names of embeddings. places: operation -> where
    the partitioned graph ran it.
    """

    replicas: int
    pulls: bool = True
    fused: bool = False
    tables: frozenset[str] = frozenset()
    places: dict[str, int] = field(default_factory=dict)

    def phase(self, node: str) -> Phase | None:
        pieces = node.split("/")
        if KEPT in pieces:
            return None
        if pieces[0] == "gradient_tape":
            return "backward"
        if pieces[0] == "compute":
            if len(pieces) > 2 and pieces[2] in self.tables:
                return "merge"
            if self.fused:
                return "forward_backward"
            return "backward" if len(pieces) > 2 and pieces[2] == "backward" else "forward"
        if pieces[0] in ("read", "lookup"):
            return "pull" if self.pulls else "forward"
        if pieces[0] == "update" and pieces[-1].startswith(NUMBERS):
            return None
        return {"merge": "merge", "update": "update"}.get(pieces[0])  # type: ignore[return-value]

    def place(self, node: str) -> int | None:
        """The replica whose device ran an operation, or HOST; None where nothing says."""
        if node in self.places:
            return self.places[node]
        found = re.match(r"(?:gradient_tape/)?compute/(\d+)/", node)
        return int(found[1]) if found else None


def events_of(plane: Any, wanted: Callable[[str], bool] = lambda line: True) -> Iterator[Event]:
    """The events of a plane's wanted lines."""
    for line in plane.lines:
        if not wanted(line.name):
            continue
        for event in line.events:
            start = line.timestamp_ns + event.offset_ps // 1000
            stats = {}
            for stat in event.stats:
                kind = stat.WhichOneof("value")
                value = getattr(stat, kind) if kind else None
                stats[plane.stat_metadata[stat.metadata_id].name] = (
                    plane.stat_metadata[value].name if kind == "ref_value" else value
                )
            yield Event(
                plane.event_metadata[event.metadata_id].name,
                start,
                start + event.duration_ps // 1000,
                stats,
            )


def read_space(space: Any, names: Names, cuda: bool, missing: Missing) -> list[dict[str, Any]]:
    """Every replica's part (see `engines.common.traced`) from an XSpace."""
    began = _profile_start(space)
    host = [
        event
        for plane in space.planes
        if plane.name.startswith("/host:")
        for event in events_of(plane)
    ]
    steps = sorted((e.start_ns, e.end_ns) for e in host if e.name == STEP)
    starts = [start for start, _ in steps]
    launches = {e.stats["correlation_id"]: e for e in host if "correlation_id" in e.stats}

    def step_of(moment: int) -> int | None:
        """The step that began last: an executor's threads may outlast its call."""
        return max((index for index, start in enumerate(starts) if start <= moment), default=None)

    activities: dict[int, list[Activity]] = {rank: [] for rank in range(names.replicas)}
    shared: list[Activity] = []  # the host works for all replicas
    leads: dict[int, int] = {}
    if cuda:
        for plane in space.planes:
            found = GPU_PLANE.match(plane.name)
            if not found or int(found[1]) >= names.replicas:
                continue
            rank = int(found[1])
            # others are derived from these
            for event in events_of(plane, lambda line: line.startswith("Stream #")):
                correlation = event.stats.get("correlation_id")
                launch = launches.get(correlation)
                if launch:
                    leads[rank] = min(
                        leads.get(rank, event.start_ns - launch.start_ns),
                        event.start_ns - launch.start_ns,
                    )
                index = step_of(launch.start_ns if launch else event.start_ns)
                activities[rank].append(
                    _device_activity(event, rank, index, names, correlation if launch else None)
                )
    operations = (
        (event, found)
        for event in host
        if (found := NODE.match(event.name)) and found[2] not in NO_WORK
    )
    for number, (event, match) in enumerate(operations):
        node, op = match.groups()
        place, index, phase = names.place(node), step_of(event.start_ns), names.phase(node)
        if place == HOST and phase and index is not None:
            shared.append(Activity(op, "compute", event.start_ns, event.end_ns, index, phase))
        elif not cuda and place in activities:
            kind: Kind = "collective" if COLLECTIVE.match(op) else "compute"
            span = event.start_ns, event.end_ns
            is_kernel = kind == "compute"
            activities[place].append(Activity(op, kind, *span, index, phase, number, 0, is_kernel))
    work = [
        Host(a.step, a.phase, a.start_ns, a.end_ns)
        for a in without_strays(shared)
        if a.phase and a.step is not None
    ]
    parts = []
    for rank, mine in activities.items():
        own = without_strays(with_gradients(mine))
        part = replica_trace(rank, own, work, steps, "xplane", missing, leads.get(rank))
        parts.append(part | {"origin_ns": part["origin_ns"] + began})
    if parts:  # one host works for all replicas
        parts[0]["host"] = host_totals(shared)
    seen = {
        phase for part in parts for step in part["replica"]["steps"] for phase in step["phases"]
    }
    if "forward_backward" not in seen:
        why = "no operation carries the name scope of such a phase"
        more: Missing = {
            phase: why
            for phase in ("forward", "backward")
            if phase not in seen and phase not in missing
        }
        parts = [part | {"missing": {**missing, **more}} for part in parts]
    return parts


def with_gradients(activities: list[Activity]) -> list[Activity]:
    """Take the phase from updates before their device's first backward: they make zeros."""
    begins: dict[Any, int] = {}
    for a in activities:
        if a.phase in ("backward", "forward_backward") and a.kind == "compute":
            begins[a.step] = min(begins.get(a.step, a.start_ns), a.start_ns)
    return [
        replace(a, phase=None) if a.phase == "update" and a.end_ns <= begins.get(a.step, 0) else a
        for a in activities
    ]


def without_strays(activities: list[Activity], share: float = STRAY) -> list[Activity]:
    """The same activities, without phase within `share` of their phase's work from its ends."""
    groups: dict[Any, list[int]] = {}
    for index, a in enumerate(activities):
        if a.phase and a.kind == "compute":
            groups.setdefault((a.step, a.phase), []).append(index)
    found = list(activities)
    for members in groups.values():
        total = sum(activities[i].end_ns - activities[i].start_ns for i in members)
        by_end = sorted(members, key=lambda i: -activities[i].end_ns)
        for order in (sorted(members, key=lambda i: activities[i].start_ns), by_end):
            left = share * total
            for i in order:
                left -= activities[i].end_ns - activities[i].start_ns
                if left < 0:
                    break
                found[i] = replace(found[i], phase=None)
    return found


def _device_activity(
    event: Event, rank: int, step: int | None, names: Names, launch: Any
) -> Activity:
    details = str(event.stats.get("memcpy_details", ""))
    found = NODE.match(str(event.stats.get("tf_op", "")))
    phase = names.phase(found[1]) if found else None
    size, target = re.search(r"size:(\d+)", details), re.search(r"dest:(\d+)", details)
    kind: Kind = COPY_KINDS.get(
        event.name, "collective" if "nccl" in event.name.lower() else "compute"
    )
    if event.name == "MemcpyD2D" and target and int(target[1]) != rank:
        kind = "device_to_device"
    if kind in COPIES and phase in PASSES:
        # a copy has the name of what it copies: a gradient that leaves its tower is on its way to
        # the merge
        phase = "merge" if size and int(size[1]) >= SMALLEST_GRADIENT else None
    kernel = not event.name.startswith(("Memcpy", "Memset"))
    moved = int(size[1]) if size else 0
    span = event.start_ns, event.end_ns
    return Activity(event.name, kind, *span, step, phase, launch, moved, kernel)


def _profile_start(space: Any) -> int:
    """The host's real-time clock in ns when the profile began; 0 where the trace does not say."""
    named = (
        (plane.stat_metadata[stat.metadata_id].name, stat)
        for plane in space.planes
        for stat in plane.stats
    )
    starts = (stat for name, stat in named if name == "profile_start_time")
    return next((int(stat.uint64_value or stat.int64_value) for stat in starts), 0)
