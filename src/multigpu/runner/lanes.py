"""Which Runs may share a machine, and measuring them side by side: each lane by a thread of its
own. Imports no framework. A lane is an ordinary sweep whose processes see its GPUs and cores alone,
with the same folder of Records and the same keys. Caches of compiled kernels are shared, as between
the processes of one launch: their libraries write them whole.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event

from multigpu.machine.lane import LANE_VARIABLE, Lane, Place, places, visible_gpus
from multigpu.machine.lock import machine_lock
from multigpu.machine.machine import Machine, gpu_count, this_machine
from multigpu.placements import find_placement
from multigpu.records.record import RecordStore
from multigpu.runner.point import START_S, Point, known_here, launch_of
from multigpu.runner.summary import Bar, Summary, followed
from multigpu.runner.sweep import measure, sweep
from multigpu.runner.timed import TIMED
from multigpu.spec.rules.inputs import ON_DEVICE
from multigpu.spec.run import Run


def undisturbed(run: Run) -> bool:
    """Whether Runs of this kind were shown to be slowed by at most 0.5% beside others
    (`data/interference`, page 17 of the report). Whole steps as one CUDA graph on one GPU were.
    Steps that the host launches call by call differ so much from launch to launch that nothing is
    shown of them, and two GPUs beside two have not been checked. On CPUs nobody shares unless told
    to.
    """
    return run.device_type == "cpu" or (
        run.framework == "torch"
        and run.devices == 1
        and run.execution in ("captured", "compiled_captured")
    )


def lane_count(run: Run, machine: Machine, forced: int | None = None) -> int:
    """Lanes in which Runs of this many devices can be measured side by side; on CPUs one, which all
    processes need, unless forced.
    """
    if forced is not None:
        return forced
    return min(len(machine.gpus) // run.devices, machine.cores) if run.device_type == "cuda" else 1


def may_share(
    run: Run,
    machine: Machine | None = None,
    forced: int | None = None,
    kinds: Callable[[Run], bool] = undisturbed,
) -> str | None:
    """Why this Run needs the machine (None: this one) to itself, in few words; None: it may share.
    forced: lanes, whatever the devices. Lanes have GPUs and cores of their own, but one host
        memory, one set of links to it and one NVML: who needs those is alone.
    """
    machine = machine or this_machine()
    reasons = {
        "several hosts are one machine": machine.hosts > 1,
        "variables, reduces or updates on the host": find_placement(run.placement).uses_host,
        "TensorFlow's processes talk through the host": (
            run.framework == "tensorflow" and run.processes == "per_device"
        ),
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


def lanes_of(
    run: Run, machine: Machine | None = None, kinds: Callable[[Run], bool] = undisturbed
) -> int:
    """How many such Runs are measured at a time: as many as there are lanes, or one that may not
    share.
    """
    machine = machine or this_machine()
    return 1 if may_share(run, machine, None, kinds) else lane_count(run, machine)


def sharing_words(points: Sequence[Point], machine: Machine | None = None) -> str:
    """How many of these measurements share the machine, and how many do not, by reason."""
    reasons = Counter(may_share(point.run, machine) for point in points)
    share = reasons.pop(None, 0)
    alone = ", ".join(f"{count} ({reason})" for reason, count in reasons.most_common())
    return (
        f"{share} of {len(points)} measurements share the machine, each in a lane of its own;"
        f" alone: {alone or 'none'}"
    )


def units(points: Sequence[Point]) -> list[list[Point]]:
    """The points in groups that stay together: of one launch, different in their batch alone (a
    ladder is climbed by one), and repeats.
    """
    found: dict[tuple[object, ...], list[Point]] = {}
    for point in points:
        ladder = point.run.model_copy(update={"batch_size": 0}).digest
        found.setdefault((*launch_of(point), ladder), []).append(point)
    return list(found.values())


def deal(
    points: Sequence[Point],
    lanes: int,
    cost_s: Callable[[Point], float] = lambda _: 1.0,
    start_s: float = START_S,
) -> list[list[Point]]:
    """Each lane's points, so that lanes end at about the same time: the longest units first, each
    where it ends soonest.
    cost_s: seconds of a point. start_s: of every launch that a lane must start.
    """
    found: list[list[Point]] = [[] for _ in range(lanes)]
    launches: list[set[object]] = [set() for _ in range(lanes)]
    seconds = [0.0] * lanes
    for unit in sorted(units(points), key=lambda unit: -sum(map(cost_s, unit))):
        launch = launch_of(unit[0])
        ends = [
            so_far + (0.0 if launch in begun else start_s)
            for so_far, begun in zip(seconds, launches, strict=True)
        ]
        lane = ends.index(min(ends))
        seconds[lane] = ends[lane] + sum(map(cost_s, unit))
        launches[lane].add(launch)
        found[lane] += unit
    return found


def places_here(devices: int, device_type: str, count: int) -> list[Place]:
    """So many lanes of this process's GPUs and cores."""
    if device_type == "cuda":
        gpus = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), gpu_count())
    else:
        gpus = None
    return places(count, devices, gpus, os.sched_getaffinity(0))


def lane_environment(place: Place, neighbours: int) -> dict[str, str]:
    """Return the variables that a lane's launches have beside those of all launches."""
    told = {
        "machine": this_machine(),
        "lane": Lane(gpus=list(place.gpus), cores=len(place.cores), neighbours=neighbours),
    }
    environment = {
        LANE_VARIABLE: json.dumps({name: one.model_dump(mode="json") for name, one in told.items()})
    }
    if place.visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = place.visible
    if "OMP_NUM_THREADS" not in os.environ:
        environment["OMP_NUM_THREADS"] = str(len(place.cores))
    return environment


def run_lanes(
    shares: Mapping[Place, Sequence[Point]],
    store: RecordStore,
    bar: Bar,
    summary: Summary,
    retry: Sequence[str] = (),
    hook: str | None = None,
) -> None:
    """Measure each lane's points, all at the same time; a RuntimeError: launchers died; the others
    finished and Records are kept.
    """
    stop = Event()

    def measured(place: Place) -> Summary:
        items, environment = (shares[place], lane_environment(place, len(shares) - 1))
        # of this thread, and of all that it starts, which ends with it
        os.sched_setaffinity(0, place.cores)
        return sweep(TIMED, items, store, retry, False, hook, environment, bar=bar, stop=stop)

    with machine_lock(), ThreadPoolExecutor(len(shares)) as threads:
        lanes = [threads.submit(measured, place) for place in shares]
        try:
            wait(lanes)
        finally:
            stop.set()  # of use where a Ctrl-C ended the wait: lanes end their launches in order
    dead = []
    for number, (place, lane) in enumerate(zip(shares, lanes, strict=True)):
        try:
            summary.add(lane.result())
        except RuntimeError as error:
            dead.append(f"lane {number} ({place}): {error}")
    if dead:
        raise RuntimeError(f"{'; '.join(dead)}; the other lanes finished")


def measure_shared(
    points: Sequence[Point],
    store: RecordStore,
    retry: Sequence[str] = (),
    progress: bool = True,
    hook: str | None = None,
    cost_s: Callable[[Point], float] | None = None,
    lanes: int | None = None,
) -> Summary:
    """As `measure`: first the points that may share, in lanes, then the others, one after another.
    cost_s: seconds that a point may take, by which lanes are filled. lanes: how many, whatever the
        devices (None: as there is room for).
    """
    TIMED.check_all(points, None)
    store.check_writable(this_machine().name)
    machine = this_machine()
    known = known_here(points, store, retry)
    sharing: dict[tuple[str, int], list[Point]] = defaultdict(list)
    rest: list[Point] = []
    for point in points:
        alone = may_share(point.run, machine, lanes)
        (rest if alone else sharing[point.run.device_type, point.run.devices]).append(point)

    def is_known(point: Point) -> bool:
        return (point.run, point.repeat) in known

    def price(point: Point) -> float:
        return 0.0 if is_known(point) else cost_s(point) if cost_s else 1.0

    with followed(len(points), progress) as (summary, bar):
        for (device_type, devices), own in sorted(sharing.items(), reverse=True):
            fresh = [point for unit in units(own) if not all(map(is_known, unit)) for point in unit]
            summary.reused += len(own) - len(fresh)
            bar.update(len(own) - len(fresh))
            if not fresh:
                continue
            hands = [
                hand
                for hand in deal(fresh, lane_count(fresh[0].run, machine, lanes), price)
                if hand
            ]
            if len(hands) < 2:  # nothing to share with
                rest += fresh
                continue
            where = places_here(devices, device_type, len(hands))
            run_lanes(dict(zip(where, hands, strict=True)), store, bar, summary, retry, hook)
        if rest:
            summary.add(measure(rest, store, retry, progress, hook, bar=bar))
    return summary
