"""What a launch is told to do, what a Record of it looks like, and how long a Run will take. Imports no framework."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from multigpu.collectives.record import COLLECTIVE_TIMING_VERSION, CollectiveMeasurement, CollectiveRecord, collective_key
from multigpu.collectives.run import CollectiveRun
from multigpu.kept import made_here
from multigpu.measure.machine import Machine, framework_version, this_machine, versions
from multigpu.record import Status


class Item(BaseModel):
    """One CollectiveRun to measure."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    run: CollectiveRun
    repeat: int = 0
    attempt: int = 0


class CollectivePlan(BaseModel):
    """One launch: Runs of one number of devices, in order.

    timeout_s: for one Run, after which a hang is taken for granted. address: where process 0 offers its store.
    machine: several hosts (None: this machine alone). interface: of each host, whose bytes are read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    items: list[Item]
    devices: int
    cuda: bool
    records: Path
    scratch: Path
    launch_id: str
    timeout_s: float = 60.0
    address: str = "127.0.0.1"
    machine: Machine | None = None
    interface: str | None = None

    @property
    def most_symmetric_bytes(self) -> int:
        """The largest message of torch's two-shot."""
        return max((item.run.bytes for item in self.items if item.run.method == "two_shot"), default=0)


def make_record(
    item: Item,
    launch_id: str,
    status: Status,
    reason: str,
    measurement: CollectiveMeasurement | None,
    machine: Machine | None = None,
) -> CollectiveRecord:
    """A Record of this machine, or of the several hosts that `machine` is, now."""
    machine = machine or this_machine()
    return CollectiveRecord(
        key=collective_key(item.run, item.repeat, machine.name, framework_version("torch")),
        attempt=item.attempt,
        run=item.run,
        repeat=item.repeat,
        status=status,
        reason=reason,
        timing_version=COLLECTIVE_TIMING_VERSION,
        launch_id=launch_id,
        measurement=measurement,
        **made_here({name: version for name, version in versions().items() if "tensorflow" not in name}, machine),
    )


LATENCY_BYTES = 2**20
"""Up to this size a message takes about as long as any smaller one."""


class Forecast:
    """How long a Run will take, from the largest message of its method and form of execution so far."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], tuple[int, float]] = {}

    def seconds(self, run: CollectiveRun) -> float:
        """As long as the largest known, or more in proportion to the bytes above 1 MiB; 0 where nothing is known."""
        size, seconds = self.known.get((run.method, run.execution), (run.bytes, 0.0))
        return seconds * max(1.0, run.bytes / max(size, LATENCY_BYTES))

    def note(self, run: CollectiveRun, seconds: float) -> None:
        """Learn that `run` took so long."""
        if run.bytes >= self.known.get((run.method, run.execution), (0, 0.0))[0]:
            self.known[run.method, run.execution] = (run.bytes, seconds)
