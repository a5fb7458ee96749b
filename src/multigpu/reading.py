"""Records as pages and claims read them: those of machines with the same GPUs as one, traced steps beside untraced ones."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from multigpu import paths
from multigpu.held_memory import with_peaks, without_held_memory
from multigpu.older_programs import compiled_in_blocks
from multigpu.record import Record, RecordStore
from multigpu.same_gpus import as_one, untraced_digest
from multigpu.store import Stamp, stamp_of


def stored_records(root: Path | None = None) -> tuple[Record, ...]:
    """The Records of a folder (None: the study's) as their files have them, which are read again when any of them is new, gone or changed.

    A page asks for thousands of them up to six times. All who ask get the same Records, so what is in one must be left as it is.

    Raises:
        ValueError: a file is no Record; the sentence names it.
        OSError: a file went away meanwhile.
    """
    folder = root or paths.RUNS
    # looked at before they are read: what is written meanwhile makes the next stamp another
    return _stored(folder, stamp_of(folder))


@lru_cache(maxsize=1)
def _stored(root: Path, _: Stamp) -> tuple[Record, ...]:
    return tuple(RecordStore(root))


def study_records(root: Path | None = None) -> list[Record]:
    """The Records that pages and claims speak of, as they are read.

    Raises:
        ValueError: a file is no Record; the sentence names it.
    """
    return as_read(stored_records(root))


def as_read(records: Iterable[Record]) -> list[Record]:
    """The Records `as_one`, without memory that earlier Runs held but with what the same Run took elsewhere (`with_peaks`), each traced one
    with what an untraced step of its Run takes.
    """
    return with_untraced_steps(as_one(with_peaks(without_held_memory(records))))


def todays_records(root: Path | None = None) -> list[Record]:
    """As `study_records`, without those of an older program under the same Run (`older_programs`). Where one machine has such a Record,
    what another machine with its GPUs measured since counts there, which it else does not: every machine's own Records come first.

    Raises:
        ValueError: a file is no Record; the sentence names it.
    """
    return as_read(of_todays_programs(stored_records(root)))


def of_todays_programs(records: Iterable[Record]) -> list[Record]:
    """The Records that are not of an older program under the same Run."""
    return [record for record in records if not compiled_in_blocks(record)]


def measured_by(machine: str, root: Path | None = None) -> list[Record]:
    """All Records that one machine measured, under its own name, whether or not they count under another's too; for tables whose rows are
    to be of one machine alone.

    Raises:
        ValueError: a file is no Record; the sentence names it.
    """
    return with_untraced_steps(record for record in without_held_memory(stored_records(root)) if record.machine.name == machine)


def with_untraced_steps(records: Iterable[Record]) -> list[Record]:
    """The Records, each traced one with its `untraced_step_s`: seconds a step of the untraced Records of its Run on its machine, by repeat.

    A traced Run times steps before it is profiled, but on H200s eager ones took 1.3 times as long in the median as untraced ones, up to 2.2
    times, and those behind the first of a launch longer than the first: PyTorch's profiler leaves CUPTI attached, and traced launches were
    of other occasions. Which of the two did how much was not measured. Without an untraced Record the Run's own steps are all there is.
    Of several lengths of timing that of the traced Run counts, or else the longest.
    """
    every = list(records)
    taken: dict[tuple[str, str, str, int], dict[int, dict[int, float]]] = {}  # point -> timed steps -> repeat -> seconds
    for record in every:
        if record.status == "ok" and record.measurement and not record.run.traced_steps:
            found = taken.setdefault(_point(record), {}).setdefault(record.run.timed_steps, {})
            found[record.repeat] = record.measurement.wall_s / record.run.timed_steps
    return [_beside(record, taken.get(_point(record), {})) if record.run.traced_steps else record for record in every]


def _point(record: Record) -> tuple[str, str, str, int]:
    return record.machine.name, untraced_digest(record.run), record.framework_version, record.timing_version


def _beside(record: Record, taken: dict[int, dict[int, float]]) -> Record:
    if record.measurement is None or not taken:
        return record
    longest = max(taken)
    steps = taken.get(record.run.timed_steps) or taken[longest]
    return record.model_copy(update={"measurement": record.measurement.model_copy(update={"untraced_step_s": steps})})
