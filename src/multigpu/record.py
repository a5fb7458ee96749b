"""A Record: all that one Run measured, with the machine it ran on; written once, atomically, and never edited."""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from multigpu.measure.machine import DeviceState, Machine
from multigpu.measure.trace import TraceSummary
from multigpu.run import Run

SCHEMA_VERSION = 1

Status = Literal["ok", "out_of_memory", "timeout", "unsupported", "failed"]


class Measurement(BaseModel):
    """What the clocks and counters said of one Run. Lists by rank have one entry a replica.

    wall_s: barrier to barrier on the host over the timed steps, the maximum over ranks: the clock of every throughput.
    units: words, images or rows of reviews of all replicas over the timed steps, padding left out; padded_units: padding included.
    step_time_s: [rank][step] from device events, warm-up steps first, in seconds.
    event_time_s: by rank, device events around the whole timed window.
    step_clock: whose marks these two are. "host": TensorFlow offers no events between steps, so a step lasts until the host has
        dispatched it, and the last of a window until every device has finished; all replicas of one process share the marks.
    loss: [step] mean over the loss terms of the joined batch, warm-up first (independent and asynchronous replicas: over all of them).
    moved_bytes, predicted_bytes: of one step over all replicas, by kind (see `placements.traffic`); moved_bytes None: they could
        not be counted, and a flag says why.
    parameter_change: norm of (variables after the last step - variables at the start) over the norm at the start.
    replicas_agree: whether all replicas held the same variables at the end (None where they need not).
    host_threads: that each replica may use; startup_s: from the start of the slowest worker's process to its first Run.
    build_s, warmup_s, total_s: of this Run: until the model stands, all warm-up steps, everything.
    trace: of the traced steps, which follow the timed ones.
    """

    # a figure that is no number is written as such and read back, instead of spoiling the file
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

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
    flags: list[str] = []
    trace: TraceSummary | None = None


class Record(BaseModel):
    """One measured Run, or the reason why there is no measurement."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA_VERSION
    key: str
    attempt: int = 0
    run: Run
    repeat: int
    status: Status
    reason: str = ""
    machine: Machine
    versions: dict[str, str]
    timing_version: int
    launch_id: str
    measured_at: str
    commit: str
    clean_tree: bool
    input_label: str = ""
    input_fingerprint: str = ""
    measurement: Measurement | None = None


def record_key(run: Run, repeat: int, machine: str, framework_version: str, timing_version: int) -> str:
    """The name of a measurement: what has a Record under this key is not measured again.

    A new framework or a changed timer makes new keys, so that their figures never share a table with the old ones unseen.
    """
    text = "|".join([run.digest, str(repeat), machine, framework_version, str(timing_version)])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def write_once(path: Path, model: BaseModel) -> None:
    """Write `model` as compressed JSON, atomically: readers see the whole file or none.

    Raises:
        FileExistsError: the file is there already.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # mtime 0: equal models are equal bytes
    data = gzip.compress(model.model_dump_json().encode(), mtime=0)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.link(temporary, path)  # unlike rename, fails if the file exists
    finally:
        os.unlink(temporary)


class RecordStore:
    """Records as `<root>/<machine>/<key>.<attempt>.json.gz`, one file each.

    Raises:
        ValueError: the folder cannot be written, or a file in it is no Record; the sentence names the path.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, machine: str, key: str, attempt: int = 0) -> Path:
        return self.root / machine / f"{key}.{attempt}.json.gz"

    def find(self, machine: str, key: str) -> Record | None:
        """The latest attempt under this key, or None."""
        attempts = sorted((self.root / machine).glob(f"{key}.*.json.gz"), key=lambda p: int(p.name.split(".")[1]))
        return read_record(attempts[-1]) if attempts else None

    def check_writable(self) -> None:
        """Fail now rather than after an hour of measuring."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            raise ValueError(f"records cannot be written to {self.root}: {error.strerror}; choose a folder with write permission") from None

    def write(self, record: Record) -> Path:
        """Write `record` atomically: readers see the whole file or none.

        Raises:
            FileExistsError: this attempt is written already (Records are never edited).
        """
        path = self.path(record.machine.name, record.key, record.attempt)
        write_once(path, record)
        return path

    def __iter__(self) -> Iterator[Record]:
        """Every Record, the latest attempt of each key only, in order of path."""
        latest: dict[tuple[str, str], Path] = {}
        for path in sorted(self.root.glob("*/*.json.gz")):
            if path.name.startswith("."):
                continue
            key, attempt = path.name.split(".")[:2]
            held = latest.get((path.parent.name, key))
            if held is None or int(held.name.split(".")[1]) < int(attempt):
                latest[path.parent.name, key] = path
        for path in latest.values():
            yield read_record(path)


def read_record(path: Path) -> Record:
    """The Record in `path`.

    Raises:
        ValueError: the file is no Record; the sentence names it.
    """
    try:
        return Record.model_validate_json(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValidationError) as error:
        raise ValueError(f"{path} is not a Record of this version: {str(error).splitlines()[0]}") from None
