"""A Record: all that one Run measured, with the machine it ran on; written once, atomically, and
never edited.
"""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Literal

from pydantic import Field

from multigpu.build import JudgedRun
from multigpu.machine.lane import Lane
from multigpu.machine.machine import DeviceState, EnergyWindow
from multigpu.machine.surroundings import Surroundings
from multigpu.records.base import SCHEMA_VERSION, RecordBase
from multigpu.records.store import Held, Store
from multigpu.records.trace import TraceSummary
from multigpu.spec.schema import Data

TIMING_VERSION = 1
"""Enters every Record's key. Raise it when a figure's meaning changes: old and new stay apart."""

# a flag, after the number: it concerns a Record's peak, not its times
HELD_FLAG = " GiB were allocated before the Run began"


class Equivalence(Data):
    """How a placement's first steps compare with those of one process on the global batch (or with
    what its semantics say).
    distance: norm of the difference of all variables over norm of the reference's update, after so
        many steps.
    """

    distance: float
    tolerance: float
    steps: int
    precision: str

    @property
    def holds(self) -> bool:
        """Whether the two are equal but for rounding."""
        return self.distance <= self.tolerance


class Measurement(Data):
    """The figures of one Run by clocks and counters. Lists by rank have one entry a replica; those
    by step begin with warm-up steps.

    wall_s: barrier to barrier on the host over the timed steps, the maximum over ranks: the clock
        of every throughput.
    units: words, images or rows of reviews of all replicas over the timed steps, padding left out;
        padded_units: padding included.
    step_time_s: [rank][step] from device events. event_time_s: by rank, device events around the
        whole timed window.
    step_clock: whose marks these two are. "host": TensorFlow offers no events between steps, so a
        step lasts until the host has dispatched it, and the last of a window until every device has
        finished; all replicas of one process share the marks.
    loss: [step] mean over the loss terms of the global batch (independent and asynchronous
        replicas: over all of them).
    moved_bytes, predicted_bytes: of one step over all replicas, by kind (see `placements.traffic`),
        or of one cycle of `semantics_of(run).every` steps; moved_bytes None: they could not be
        counted, and a flag says why.
    parameter_change: norm of (variables after the last step - variables at the start) over the norm
        at the start.
    replicas_agree: whether all replicas held the same variables at the end (None where they need
        not).
    startup_s: from the start of the slowest worker's process to its first Run, with what was
        imported before it was forked, but for a restart, which imports nothing. build_s, warmup_s,
        total_s: until the model stands, all warm-up steps, everything.
    skipped_steps: warm-up steps and timed steps whose update was left out because a gradient
        overflowed (None: none could be).
    input_wait_s: [rank][step] host time until the step had its batch; empty where batches stay on
        the device.
    ready_step_s: a step of a user's own model on batches that lay on the device before it began,
        the slowest rank's; None: not measured, since input takes next to nothing of a step.
    launch_s: host time of one small kernel's launch right after the timed steps, the slowest
        replica's; None: not measured, as on a CPU.
    energy: by rank, of a window of further steps, if the Run asks for one. trace: of the traced
        steps, which follow the timed ones.
    equivalence: of a user's own model, compared before it was timed; None: it was not.
    untraced_step_s: never in a file: repeat -> what a step of a traced Run takes where no profiler
        ever was (`reading`).
    """

    wall_s: float
    units: int
    padded_units: int
    step_time_s: list[list[float]]
    event_time_s: list[float]
    loss: list[float]
    peak_memory_gib: list[float]
    moved_bytes: dict[str, int] | None
    predicted_bytes: dict[str, int]
    parameter_change: float
    replicas_agree: bool | None
    host_threads: int
    startup_s: float
    build_s: float
    warmup_s: float
    total_s: float
    device_states: list[DeviceState]
    step_clock: Literal["device", "host"] = "device"
    skipped_steps: tuple[int, int] | None = None
    flags: list[str] = []
    input_wait_s: list[list[float]] = []
    ready_step_s: float | None = None
    launch_s: float | None = None
    energy: list[EnergyWindow] = []
    trace: TraceSummary | None = None
    equivalence: Equivalence | None = None
    untraced_step_s: dict[int, float] = Field(default_factory=dict, exclude=True)


class Record(RecordBase):
    """One measured Run, or the reason why there is no measurement.
    lane: None: the whole machine was its own. boot: which start of the host it was ("": unsaid),
        since several hosts may have one name.
    surroundings: what else the machine did (None: it was not looked at).
    """

    meaning = TIMING_VERSION

    run: JudgedRun
    timing_version: int
    input_label: str = ""
    input_fingerprint: str = ""
    measurement: Measurement | None = None
    lane: Lane | None = None
    boot: str = ""
    surroundings: Surroundings | None = None

    @property
    def own_key(self) -> str:
        return self.key_for(
            self.run, self.repeat, self.machine.name, self.framework_version, self.timing_version
        )


def faults_of(record: Record) -> Iterator[str]:
    """Yield each contradiction in a Record, in words; nothing of a Record that a launch wrote."""
    if record.schema_version != SCHEMA_VERSION:
        yield (
            f"schema_version {record.schema_version} is not the {SCHEMA_VERSION} that this version"
            " reads"
        )
    if record.key != record.own_key:
        yield f"its key is {record.key!r} and what it measured has the key {record.own_key!r}"
    if (record.status == "ok") != (record.measurement is not None):
        yield (
            f"status {record.status!r} {'without' if record.measurement is None else 'with'} a"
            " measurement"
        )
    m, ranks = record.measurement, record.run.devices
    if m is None:
        return
    for name in ("step_time_s", "event_time_s", "peak_memory_gib"):
        if (count := len(getattr(m, name))) != ranks:
            yield f"{name} is of {count} replicas and the Run has {ranks}"
    times = chain(
        [m.wall_s, m.startup_s, m.build_s, m.warmup_s, m.total_s], m.event_time_s, *m.step_time_s
    )
    if not all(0 <= seconds < math.inf for seconds in times) or not m.wall_s:
        yield "a time is negative or without end, or no time passed"
    if not 0 < m.units <= m.padded_units < 2**63:
        yield f"{m.units} units of {m.padded_units} with padding"
    if any(size < 0 or math.isinf(size) for size in m.peak_memory_gib):  # nan: it is not known
        yield "a peak of memory is negative or without end"
    if any(
        count < 0 for count in chain((m.moved_bytes or {}).values(), m.predicted_bytes.values())
    ):
        yield "bytes are negative"


class RecordStore(Store[Record]):
    """Records of Runs in `<root>/<machine>/`."""

    kind = Record

    def fault(self, record: Record, held: Held) -> str:
        return super().fault(record, held) or next(faults_of(record), "")
