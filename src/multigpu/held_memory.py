"""Peaks of memory that hold what earlier Runs of the same process left there, and batches that lacked that room.

Until `FREED_SINCE` a captured Run of an overlapped all-reduce never gave its model back (`engines.torch.buckets.BucketReducer.close`):
parameters, gradients and slots stayed on the GPU until the launch ended. Times are not touched by that. Records stay as they were
written; what is read of them leaves out the peaks of Runs that followed such a one in their launch, and the Records that say that one of
those did not fit.
"""

from __future__ import annotations

from collections.abc import Iterable

from multigpu.placements import find_placement
from multigpu.record import Record
from multigpu.run import Run

FREED_SINCE = "2026-11-23T12:50:00+00:00"


def leaves_memory(run: Run) -> bool:
    """Whether this Run's model stayed behind: its gradients travelled in the buckets that are written out for captured steps."""
    row = find_placement(run.placement)
    overlapped = row.merge == "all_reduce" and row.overlap
    return overlapped and "captured" in run.execution and run.framework == "torch" and run.processes == "per_device"


def beside_held_memory(records: Iterable[Record]) -> set[tuple[str, str, int]]:
    """(launch, key, attempt) of the Records whose process may have held an earlier Run's model."""
    every = [one for one in records if one.run.device_type == "cuda" and one.measured_at < FREED_SINCE]
    began: dict[str, str] = {}  # launch -> when the first such Run had ended
    for one in every:
        if leaves_memory(one.run):
            began[one.launch_id] = min(one.measured_at, began.get(one.launch_id, one.measured_at))
    return {_name(one) for one in every if one.measured_at > began.get(one.launch_id, FREED_SINCE)}


def without_held_memory(records: Iterable[Record]) -> list[Record]:
    """The Records, those beside held memory without a peak; those of them that were out of memory left out."""
    every = list(records)
    held = beside_held_memory(every)
    kept = [one for one in every if one.status != "out_of_memory" or _name(one) not in held]
    return [_without_peak(one) if _name(one) in held else one for one in kept]


def _name(record: Record) -> tuple[str, str, int]:
    return record.launch_id, record.key, record.attempt


def _without_peak(record: Record) -> Record:
    if record.measurement is None:
        return record
    return record.model_copy(update={"measurement": record.measurement.model_copy(update={"peak_memory_gib": []})})
