"""Measure Runs side by side, each lane by a thread of its own whose launches keep to its GPUs and cores. Imports no framework.

A lane is an ordinary sweep whose processes see a part of the machine: its launches, ports, folders of scratch and of memory have names of
their own anyway, and it writes Records into the same folder, under the same keys. Caches of compiled kernels are shared, as they are
between the processes of one launch: their libraries write them whole.
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event

from multigpu.measure.held import turn
from multigpu.measure.lane import LANE_VARIABLE, Place, places, visible_gpus
from multigpu.measure.machine import gpu_count, this_machine
from multigpu.measure.point import Point, known_points
from multigpu.measure.sharing import deal, lane_count, may_share, undisturbed, units
from multigpu.measure.summary import Bar, Summary, followed
from multigpu.measure.sweep import measure, sweep
from multigpu.measure.timed import TIMED, item_of
from multigpu.record import RecordStore
from multigpu.run import Run


@dataclass(frozen=True)
class Share:
    """A lane's place and what it measures."""

    place: Place
    points: Sequence[Point]


def places_here(devices: int, device_type: str, count: int) -> list[Place]:
    """So many lanes of this process's GPUs and cores."""
    gpus = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), gpu_count()) if device_type == "cuda" else None
    return places(count, devices, gpus, os.sched_getaffinity(0))


def lane_environment(place: Place, neighbours: int) -> dict[str, str]:
    """What the processes of a lane's launches find in their environment beside what all do."""
    lane = place.lane(neighbours)
    told = json.dumps({"machine": this_machine().model_dump(mode="json"), "lane": lane.model_dump(mode="json")})
    environment = {LANE_VARIABLE: told}
    if place.visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = place.visible
    if "OMP_NUM_THREADS" not in os.environ:
        environment["OMP_NUM_THREADS"] = str(lane.cores)
    return environment


def run_lanes(
    shares: Sequence[Share], store: RecordStore, bar: Bar, summary: Summary, retry: Sequence[str] = (), hook: str | None = None
) -> None:
    """Measure every share at the same time, until all have ended.

    Raises:
        RuntimeError: a lane's launcher died; the others have finished, and all that was measured is kept.
    """
    stop = Event()

    def measured(share: Share) -> Summary:
        items, environment = [item_of(point) for point in share.points], lane_environment(share.place, len(shares) - 1)
        os.sched_setaffinity(0, share.place.cores)  # of this thread, and of all that it starts, which ends with it
        return sweep(TIMED, items, store, retry, False, hook, environment, bar=bar, stop=stop)

    with turn(), ThreadPoolExecutor(len(shares)) as threads:
        lanes = [threads.submit(measured, share) for share in shares]
        try:
            wait(lanes)
        finally:
            stop.set()  # of use where a Ctrl-C ended the wait: lanes end their launches in order
    dead = []
    for number, (share, lane) in enumerate(zip(shares, lanes, strict=True)):
        try:
            summary.add(lane.result())
        except RuntimeError as error:
            dead.append(f"lane {number} ({share.place}): {error}")
    if dead:
        raise RuntimeError(f"{'; '.join(dead)}; the other lanes finished")


def measure_shared(
    points: Sequence[Point],
    store: RecordStore,
    retry: Sequence[str] = (),
    progress: bool = True,
    hook: str | None = None,
    kinds: Callable[[Run], bool] = undisturbed,
    cost_s: Callable[[Point], float] | None = None,
    lanes: int | None = None,
) -> Summary:
    """Measure every point that has no Record yet: first those that may share, in lanes, then the others, one after another.

    Args:
        kinds: of Runs that were shown not to disturb each other. cost_s: seconds that a point may take, by which lanes are filled.
        lanes: how many, whatever the devices (None: as many as the machine has room for).

    Raises:
        ValueError: as `measure`; nothing was started.
        RuntimeError: a lane or a launcher died; what was measured is kept and the same call goes on from there.
    """
    TIMED.check_all([item_of(point) for point in points], None)
    store.check_writable(this_machine().name)
    machine = this_machine()
    known = known_points(points, store, retry)
    sharing: dict[tuple[str, int], list[Point]] = defaultdict(list)
    rest: list[Point] = []
    for point in points:
        alone = may_share(point.run, machine, lanes, kinds)
        (rest if alone else sharing[point.run.device_type, point.run.devices]).append(point)

    def is_known(point: Point) -> bool:
        return (point.run.digest, point.repeat) in known

    def price(point: Point) -> float:
        return 0.0 if is_known(point) else cost_s(point) if cost_s else 1.0

    with followed(len(points), progress) as (summary, bar):
        for (device_type, devices), own in sorted(sharing.items(), reverse=True):
            fresh = [point for unit in units(own) if not all(map(is_known, unit)) for point in unit]
            summary.reused += len(own) - len(fresh)
            bar.update(len(own) - len(fresh))
            if not fresh:
                continue
            hands = [hand for hand in deal(fresh, lane_count(fresh[0].run, machine, lanes), price) if hand]
            if len(hands) < 2:  # nothing to share with
                rest += fresh
                continue
            where = places_here(devices, device_type, len(hands))
            run_lanes([Share(place, hand) for place, hand in zip(where, hands, strict=True)], store, bar, summary, retry, hook)
        if rest:
            summary.add(measure(rest, store, retry, progress, hook, bar=bar))
    return summary
