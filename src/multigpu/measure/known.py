"""Which points this machine has measured already."""

from __future__ import annotations

from collections.abc import Sequence

from multigpu.measure.machine import framework_version, this_machine
from multigpu.measure.point import Point
from multigpu.measure.timing import TIMING_VERSION
from multigpu.record import RecordStore, record_key
from multigpu.run import Run


def key_here(run: Run, repeat: int) -> str:
    """The key under which measuring this on this machine finds its Record or writes it, by the framework and the timer that are here."""
    return record_key(run, repeat, this_machine().name, framework_version(run.framework), TIMING_VERSION)


def known_points(points: Sequence[Point], store: RecordStore, retry: Sequence[str] = ()) -> set[tuple[str, int]]:
    """(digest, repeat) of the points that have a Record already and are not to be measured again."""
    machine, found = this_machine().name, set()
    for point in points:
        record = store.find(machine, key_here(point.run, point.repeat))
        if record is not None and record.status not in retry:
            found.add((point.run.digest, point.repeat))
    return found
