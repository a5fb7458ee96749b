"""Measure Runs side by side, each lane in a process of its own that keeps to its GPUs and cores. Imports no framework.

A lane is an ordinary sweep that sees a part of the machine: its launches, ports, folders of scratch and of memory have names of their
own anyway, and it writes Records into the same folder, under the same keys. Caches of compiled kernels are shared, as they are
between the processes of one launch: their libraries write them whole.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TextIO

from multigpu.inputs.check import check_inputs
from multigpu.measure.lane import LANE_VARIABLE, Place, places, visible_gpus
from multigpu.measure.machine import gpu_count, keep_to, this_machine
from multigpu.measure.memory import scratch_folder
from multigpu.measure.point import Point, known_points
from multigpu.measure.process import end_in_order, end_with_parent, last_words
from multigpu.measure.sharing import deal, lane_count, may_share, undisturbed, units
from multigpu.measure.summary import Bar, Summary, followed
from multigpu.measure.sweep import launch_environment, measure
from multigpu.measure.timed import check_devices
from multigpu.measure.turn import turn
from multigpu.record import RecordStore
from multigpu.run import Run
from multigpu.schema import Data

END_S = 40.0
"""A lane that is told to end has so long to end its launch, which may take 20 s itself."""


class Task(Data):
    """What a lane's process is told to do."""

    points: list[Point]
    records: Path
    retry: list[str] = []
    hook: str | None = None
    cores: list[int]


@dataclass(frozen=True)
class Share:
    """A lane's place and what it measures."""

    place: Place
    points: Sequence[Point]


class Messenger:
    """A lane's progress bar: a line of JSON for each thing that it is told."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def say(self, **event: Any) -> None:
        print(json.dumps(event), file=self.out, flush=True)

    def update(self, n: float = 1) -> bool | None:
        self.say(update=n)
        return None

    def set_description(self, desc: str | None = None) -> None:
        self.say(description=desc)

    def set_postfix_str(self, s: str = "") -> None:
        self.say(postfix=s)

    def close(self) -> None:
        """Nothing to close: the sweep that started this lane has the bar."""


def places_here(devices: int, device_type: str, count: int) -> list[Place]:
    """So many lanes of this process's GPUs and cores."""
    gpus = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), gpu_count()) if device_type == "cuda" else None
    return places(count, devices, gpus, os.sched_getaffinity(0))


def lane_environment(place: Place, neighbours: int) -> dict[str, str]:
    """What a lane's process finds in its environment."""
    lane = place.lane(neighbours)
    told = json.dumps({"machine": this_machine().model_dump(mode="json"), "lane": lane.model_dump(mode="json")})
    environment = launch_environment() | {LANE_VARIABLE: told}
    if place.visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = place.visible
    if "OMP_NUM_THREADS" not in os.environ:
        environment["OMP_NUM_THREADS"] = str(lane.cores)
    return environment


@dataclass
class _Child:
    """A lane's process as its parent sees it."""

    name: str
    process: subprocess.Popen[str]
    log: Path


def run_lanes(
    shares: Sequence[Share], store: RecordStore, bar: Bar, summary: Summary, retry: Sequence[str] = (), hook: str | None = None
) -> None:
    """Measure every share in a process of its own, all at the same time, until all have ended.

    Raises:
        RuntimeError: a lane died; the others have finished, and all that was measured is kept.
    """
    children: list[_Child] = []
    told = Lock()
    with turn(), scratch_folder("multigpu-lanes-") as folder, ThreadPoolExecutor(len(shares)) as listeners:
        try:
            for number, share in enumerate(shares):
                # by this thread, which lives as long as the sweep: a child ends with the thread that started it
                children.append(_start(number, share, len(shares) - 1, store, retry, hook, folder))
            for heard in [listeners.submit(_listen, child.process, bar, summary, told) for child in children]:
                heard.result()
            if dead := [child for child in children if child.process.wait() != 0]:
                words = "; ".join(
                    f"{child.name} ended with {child.process.returncode} ({last_words(child.log.read_text(errors='replace'))})"
                    for child in dead
                )
                raise RuntimeError(f"{words}; the other lanes finished, what was measured is kept, and the same command goes on from there")
        finally:
            end_in_order([child.process for child in children], END_S)


def _start(number: int, share: Share, neighbours: int, store: RecordStore, retry: Sequence[str], hook: str | None, folder: Path) -> _Child:
    task = Task(points=list(share.points), records=store.root.resolve(), retry=list(retry), hook=hook, cores=list(share.place.cores))
    file, log = folder / f"{number}.json", folder / f"{number}.log"
    file.write_text(task.model_dump_json())
    with open(log, "w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "multigpu.measure.lanes", str(file)],
            env=lane_environment(share.place, neighbours),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # a Ctrl-C reaches the sweep, which then ends its lanes in order
        )
    return _Child(f"lane {number} ({share.place})", process, log)


def _listen(process: subprocess.Popen[str], bar: Bar, summary: Summary, told: Lock) -> None:
    """Pass on what a lane says until it ends; a line that is cut off by its death says nothing. told: held while one lane is heard."""
    assert process.stdout
    for line in process.stdout:
        with suppress(json.JSONDecodeError):
            event = json.loads(line)
            with told:
                _show(event, bar, summary)


def _show(event: dict[str, Any], bar: Bar, summary: Summary) -> None:
    if "update" in event:
        bar.update(event["update"])
    elif "description" in event:
        bar.set_description(event["description"])
    elif "postfix" in event:
        bar.set_postfix_str(event["postfix"])
    elif "statuses" in event:
        summary.add(Summary(Counter(event["statuses"]), event["troubles"], event["notes"], event["reused"]))


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
    for point in points:
        check_devices(point.run)
    check_inputs(point.run for point in points)
    store.check_writable(this_machine().name)
    machine = this_machine()
    known = known_points(points, store, retry)
    sharing: dict[tuple[str, int], list[Point]] = {}
    rest: list[Point] = []
    for point in points:
        together = sharing.setdefault((point.run.device_type, point.run.devices), [])
        (rest if may_share(point.run, machine, lanes, kinds) else together).append(point)

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


def _stop(*_: Any) -> None:
    """As Ctrl-C: the launch is ended in order. Once: a second word would cut that short."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    """Entry point: `python -m multigpu.measure.lanes FILE`, in a lane's environment."""
    end_with_parent()
    signal.signal(signal.SIGTERM, _stop)
    task = Task.model_validate_json(Path(sys.argv[1]).read_text())
    keep_to(task.cores)  # no framework has been imported, and all that starts from here inherits it
    messenger = Messenger(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)  # whatever else is printed is no message
    try:
        done = measure(task.points, RecordStore(task.records), task.retry, False, task.hook, bar=messenger)
    except KeyboardInterrupt:
        return 130
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    messenger.say(statuses=dict(done.statuses), troubles=done.troubles, notes=done.notes, reused=done.reused)
    return 0


if __name__ == "__main__":
    sys.exit(main())
