"""Which Runs may share a machine, each in a lane of its own, and which lane measures which. Imports no framework."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from multigpu.conditions import ON_DEVICE
from multigpu.measure.machine import Machine, this_machine
from multigpu.measure.point import Point, launch_of
from multigpu.placements import find_placement
from multigpu.run import Run

START_S = 10.0
"""What starting a launch takes on a host of GPUs: its processes, CUDA and NCCL."""


def undisturbed(run: Run) -> bool:
    """Whether Runs of this kind were shown to be slowed by at most 0.5% beside others (`data/interference`, page 17 of the report).

    Whole steps as one CUDA graph on one GPU were. Steps that the host launches call by call differ so much from launch to launch that
    nothing is shown of them, and two GPUs beside two have not been checked. On CPUs nobody shares unless told to.
    """
    return run.device_type == "cpu" or (
        run.framework == "torch" and run.devices == 1 and run.execution in ("captured", "compiled_captured")
    )


def lane_count(run: Run, machine: Machine, forced: int | None = None) -> int:
    """Lanes in which Runs of this many devices can be measured side by side; on CPUs one, which all processes need, unless forced."""
    if forced is not None:
        return forced
    return min(len(machine.gpus) // run.devices, machine.cores) if run.device_type == "cuda" else 1


def may_share(
    run: Run, machine: Machine | None = None, forced: int | None = None, kinds: Callable[[Run], bool] = undisturbed
) -> str | None:
    """Why this Run needs the machine to itself, in few words; None: it may share.

    Lanes have GPUs and cores of their own, but one host memory, one set of links to it and one NVML: who needs those is alone.

    Args:
        machine: on which (None: this one). forced: the number of lanes, whatever the devices.
        kinds: whether Runs of this kind were shown not to disturb each other.
    """
    machine = machine or this_machine()
    reasons = {
        "several hosts are one machine": machine.hosts > 1,
        "variables, merges or updates on the host": find_placement(run.placement).uses_host,
        "TensorFlow's processes talk through the host": run.framework == "tensorflow" and run.processes == "per_device",
        "inputs from the host": run.inputs not in ON_DEVICE or run.feed is not None,
        "energy of a whole machine": run.energy_window_s is not None,
        "host_cores counts all cores": run.host_cores is not None,
        "device_ids names GPUs of the whole machine": run.device_ids is not None,
        "peer_access is about the whole machine's links": run.peer_access is not None,
        "traced steps": run.traced_steps > 0,
        "no room for two lanes": lane_count(run, machine, forced) < 2,
        "a kind not shown to be undisturbed": not kinds(run),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def lanes_of(run: Run, machine: Machine | None = None, kinds: Callable[[Run], bool] = undisturbed) -> int:
    """How many such Runs are measured at a time: as many as there are lanes, or one that may not share."""
    machine = machine or this_machine()
    return 1 if may_share(run, machine, None, kinds) else lane_count(run, machine)


def sharing_words(points: Sequence[Point], machine: Machine | None = None) -> str:
    """How many of these measurements share the machine, and how many do not, by reason."""
    reasons = Counter(may_share(point.run, machine) for point in points)
    share = reasons.pop(None, 0)
    alone = ", ".join(f"{count} ({reason})" for reason, count in reasons.most_common())
    return f"{share} of {len(points)} measurements share the machine, each in a lane of its own; alone: {alone or 'none'}"


@dataclass
class _Load:
    """What a lane has been dealt."""

    points: list[Point] = field(default_factory=list)
    launches: set[object] = field(default_factory=set)
    seconds: float = 0.0


def units(points: Sequence[Point]) -> list[list[Point]]:
    """The points in groups that stay together: Runs of one launch that differ in their batch alone, with all their repeats there.

    A ladder is climbed from below by one launch, and repeats of one launch are what their Records say they are.
    """
    found: dict[tuple[object, ...], list[Point]] = {}
    for point in points:
        ladder = point.run.model_copy(update={"batch_size": 0}).digest
        found.setdefault((*launch_of(point), ladder), []).append(point)
    return list(found.values())


def deal(
    points: Sequence[Point], lanes: int, cost_s: Callable[[Point], float] | None = None, start_s: float = START_S
) -> list[list[Point]]:
    """Each lane's points, so that lanes end at about the same time: the longest units first, each where it ends soonest.

    Args:
        cost_s: seconds of a point (None: all alike). start_s: of every launch that a lane must start.
    """
    price = cost_s or (lambda _: 1.0)
    loads = [_Load() for _ in range(lanes)]
    for unit in sorted(units(points), key=lambda unit: -sum(map(price, unit))):
        launch = launch_of(unit[0])
        ends = [load.seconds + (0.0 if launch in load.launches else start_s) for load in loads]
        load = loads[ends.index(min(ends))]
        load.seconds = min(ends) + sum(map(price, unit))
        load.launches.add(launch)
        load.points += unit
    return [load.points for load in loads]
