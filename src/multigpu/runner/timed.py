"""Runs whose steps are timed, as an experiment: which of them share a launch, in which order, and
their Records. Imports no framework. Runs that differ in their batch alone are a ladder: above a
batch that did not fit none is tried, since it cannot fit either.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, cast

from multigpu.engines.common.numbers import ReplicaNumbers
from multigpu.engines.common.session import Opening, Session, measurement, open_session
from multigpu.machine import private_network
from multigpu.machine.lane import this_lane
from multigpu.machine.machine import gpu_count, this_boot, threads_for, versions
from multigpu.records.base import Status
from multigpu.records.record import TIMING_VERSION, Measurement, RecordStore
from multigpu.runner.experiment import Experiment, WorkerContext, input_fields
from multigpu.runner.hosts.group import LaunchHosts
from multigpu.runner.hosts.launching import check_host
from multigpu.runner.plan import Plan
from multigpu.runner.point import Point, launch_of
from multigpu.workloads import description_of

# of a point that was not started, because another showed that it would fail; no Record is written
PASSED_OVER = "passed_over"


class Timed(Experiment[Point]):
    """Steps of a Run against the clock."""

    path = "multigpu.runner.timed:TIMED"
    item, store, watched = Point, RecordStore, True
    modules = ("torch._dynamo",)

    def open(self, item: Point, seat: WorkerContext) -> Session:
        run = item.run
        # one process for all replicas has all threads
        threads = threads_for(1 if is_solo(run) else run.devices, run.host_cores)
        timing = item.timeout_s, seat.startup_s
        opening = Opening(run, seat.rank, threads, seat.shared, *timing, seat.stage)
        return open_session(opening, **seat.hosts)

    def measure(
        self, item: Point, parts: Sequence[Mapping[str, Any]], total_s: float
    ) -> Measurement:
        return measurement(item.run, cast(Sequence[ReplicaNumbers], parts), total_s)

    def fields(self, item: Point, status: Status) -> dict[str, Any]:
        return self.unread(item) | input_fields(item.run, status)

    def unread(self, item: Point) -> dict[str, Any]:
        """As `fields`, without what is known only to who reads the input."""
        return {
            "run": item.run,
            "timing_version": TIMING_VERSION,
            "lane": this_lane(),
            "boot": this_boot(),
        }

    def told(self, item: Point, measured: Measurement) -> str:
        return f"{measured.units / measured.wall_s:,.0f} {description_of(item.run).unit}/s"

    def passed_over(self, plan: Plan, item: Point) -> tuple[str, str] | None:
        batch = full_at(plan, item)
        return (PASSED_OVER, f"a batch of {batch} was out of memory") if batch else None

    def check(self, item: Point, company: LaunchHosts | None) -> None:
        check_there(item.run, company)

    def launch_of(self, item: Point) -> Any:
        return launch_of(item)

    def ordered(self, items: Sequence[Point], launch_id: str) -> list[Point]:
        """Interleaved at random, so that a drift of the machine does not look like a placement;
        grouped by devices, in a shuffled order, since a new group costs as much as a short Run;
        ladders from below.
        """
        found, order = list(items), random.Random(launch_id)
        order.shuffle(found)
        groups = sorted({item.run.chosen_devices for item in found})
        order.shuffle(groups)
        return ascending(sorted(found, key=lambda item: groups.index(item.run.chosen_devices)))

    def versions(self) -> dict[str, str]:
        return versions()


TIMED = Timed()


def is_solo(run: Any) -> bool:
    """Whether a Run has one process for all devices, or one whose session starts the others."""
    return run.framework == "tensorflow" or run.processes == "one"


def listens_everywhere(run: Any) -> bool:
    """Whether a Run's processes listen on all interfaces of their host, whatever they are told:
    TensorFlow's servers do.
    """
    return run.framework == "tensorflow" and run.processes == "per_device"


def check_there(run: Any, company: LaunchHosts | None) -> None:
    """Refuse (ValueError) what this machine, or these hosts, cannot run."""
    if company is None:
        check_devices(run)
    else:
        company.check(run)


def check_devices(run: Any) -> None:
    """Refuse (ValueError) what this machine cannot run, naming how many devices were asked for and
    how many there are.
    """
    available = gpu_count()
    if run.device_type == "cuda" and run.devices > available:
        allowed = f"at most {available} or " if available else ""
        raise ValueError(
            f"{run.devices} GPUs were asked for and this machine has {available}: choose"
            f" {allowed}device_type 'cpu'"
        )
    check_host(run, run.devices, available)
    if listens_everywhere(run) and (reason := private_network.why_not()):
        private_network.check_allowed(
            f"TensorFlow over several processes ({run.label()})",
            f"and no private network can be made here ({reason})",
        )


def ladder_of(item: Point) -> str:
    """A name that Runs have in common when they differ in their batch alone; each repeat climbs by
    itself.
    """
    return f"{item.run.model_copy(update={'batch_size': 0}).digest}|{item.repeat}"


def ascending(items: Sequence[Point]) -> list[Point]:
    """The items in their order, but where several stand on one ladder the smaller batch takes the
    earlier place; each knows those below.
    """
    rungs: dict[str, list[Point]] = {}
    for item in items:
        rungs.setdefault(ladder_of(item), []).append(item)
    for own in rungs.values():
        batches = sorted({item.run.batch_size for item in own})
        own[:] = [
            item.model_copy(
                update={"smaller": tuple(b for b in batches if b < item.run.batch_size)}
            )
            for item in own
        ]
        own.sort(key=lambda item: item.run.batch_size, reverse=True)
    return [rungs[ladder_of(item)].pop() for item in items]


def full_at(plan: Plan, item: Point) -> int | None:
    """The smallest batch below the item's own that a Record says did not fit; None: none is
    known.
    """
    for batch in item.smaller:
        record = plan.find(
            item.model_copy(
                update={"run": item.run.model_copy(update={"batch_size": batch}), "attempt": 0}
            )
        )
        if record is not None and record.status == "out_of_memory":
            return batch
    return None
