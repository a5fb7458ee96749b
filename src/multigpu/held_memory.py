"""Peaks of memory that hold what earlier Runs of the same process left there, and batches that lacked that room.

Two things stayed on the GPU until a launch ended. Until `FREED_SINCE` a captured Run of an overlapped all-reduce never gave its model
back (`engines.torch.buckets.BucketReducer.close`): parameters, gradients and slots. Until `WORKSPACES_FREED_SINCE` cuBLAS kept a workspace
for each stream of captured Runs (`engines.torch.devices.give_back_memory`). Times are not touched by that. Records stay as they were
written; what is read of them leaves out the peaks that held a model, or that workspaces may have raised by more than `TOLD`, and the
Records that say that a Run beside such a model did not fit. Since then a Run says itself what was allocated before it began
(`HELD_FLAG`): that concerns its peak and is no reason to distrust its times.
"""

from __future__ import annotations

from collections.abc import Iterable

from multigpu.measure.machine import Machine
from multigpu.measure.point import Point
from multigpu.placements import find_placement
from multigpu.record import HELD_FLAG, Record
from multigpu.run import Run
from multigpu.same_gpus import kind_of, needs_only_gpus

FREED_SINCE = "2026-11-23T12:50:00+00:00"
WORKSPACES_FREED_SINCE = "2026-11-23T18:40:00+00:00"

WORKSPACE_GIB = 0.05
"""What a captured Run left there at most: in a launch of 52 on an H200 CIFAR's ResNet-20 and LeNet rose by 0.04 GiB a Run before them."""

TOLD = 0.05
"""A peak that workspaces, or what a Run found allocated, may have raised by more than this share is not read."""


def leaves_memory(run: Run) -> bool:
    """Whether this Run's model stayed behind: its gradients travelled in the buckets that are written out for captured steps."""
    row = find_placement(run.placement)
    return row.merge == "all_reduce" and row.overlap and _is_captured(run)


def beside_held_memory(records: Iterable[Record]) -> set[tuple[str, str, int]]:
    """(launch, key, attempt) of the Records whose process may have held an earlier Run's model."""
    every = [one for one in records if one.run.device_type == "cuda" and one.measured_at < FREED_SINCE]
    first: dict[str, tuple[str, tuple[str, str, int]]] = {}  # launch -> when its first such Run had ended, and which that is
    for one in every:
        if leaves_memory(one.run):
            ended = (one.measured_at, _name(one))
            first[one.launch_id] = min(ended, first.get(one.launch_id, ended))
    held = set()
    for one in every:
        ended_at, name = first.get(one.launch_id, (FREED_SINCE, _name(one)))
        if one.measured_at >= ended_at and _name(one) != name:  # of two in one second either may have been the later
            held.add(_name(one))
    return held


def beside_workspaces(records: Iterable[Record]) -> set[tuple[str, str, int]]:
    """(launch, key, attempt) of the Records whose peak the workspaces of earlier captured Runs may have raised by more than `TOLD`."""
    launches: dict[str, list[Record]] = {}
    for one in records:
        if one.run.device_type == "cuda" and one.measured_at < WORKSPACES_FREED_SINCE:
            launches.setdefault(one.launch_id, []).append(one)
    found = set()
    for launch in launches.values():
        captured = 0
        for one in sorted(launch, key=lambda record: record.measured_at):
            peaks = one.measurement.peak_memory_gib if one.measurement else []
            if peaks and captured * WORKSPACE_GIB > TOLD * max(peaks):
                found.add(_name(one))
            captured += _is_captured(one.run)
    return found


def without_held_memory(records: Iterable[Record]) -> list[Record]:
    """The Records, those beside held memory without a peak; those of them that a model left no room for are left out."""
    every = list(records)
    models = beside_held_memory(every)
    raised = models | beside_workspaces(every)
    kept = [one for one in every if one.status != "out_of_memory" or _name(one) not in models]
    return [_without_peak(one) if _name(one) in raised else _without_flag(one) for one in kept]


def with_peaks(records: Iterable[Record]) -> list[Record]:
    """The Records, each whose own peak is not read with that of the same Run on the same kind of GPUs, if one is (the latest): what a Run
    that needs only GPUs allocates is its framework's and no host's.
    """
    every = list(records)
    known: dict[tuple[str, str, str], Record] = {}
    for one in sorted(every, key=lambda record: record.measured_at):
        if one.status == "ok" and one.measurement and one.measurement.peak_memory_gib:
            known[kind_of(one.machine), one.run.digest, one.framework_version] = one
    return [_with_peak(one, known.get((kind_of(one.machine), one.run.digest, one.framework_version))) for one in every]


def _with_peak(record: Record, other: Record | None) -> Record:
    m = record.measurement
    lacking = m is not None and not m.peak_memory_gib and kind_of(record.machine) and needs_only_gpus(record.run)
    if not lacking or m is None or other is None or other.measurement is None:
        return record
    return record.model_copy(update={"measurement": m.model_copy(update={"peak_memory_gib": other.measurement.peak_memory_gib})})


def without_peaks(points: Iterable[Point], records: Iterable[Record], here: Machine) -> list[Point]:
    """The first point of each Run that machines with the GPUs of this one measured, of whose Records none has a peak that is read."""
    kind = kind_of(here)
    own = [one for one in without_held_memory(records) if one.status == "ok" and kind and kind_of(one.machine) == kind]
    peaks = {one.run.digest for one in own if one.measurement and one.measurement.peak_memory_gib}
    lacking = {one.run.digest for one in own} - peaks
    first: dict[str, Point] = {}
    for point in points:
        if point.run.digest in lacking:
            first.setdefault(point.run.digest, point)
    return list(first.values())


def _is_captured(run: Run) -> bool:
    return "captured" in run.execution and run.framework == "torch" and run.processes == "per_device"


def _name(record: Record) -> tuple[str, str, int]:
    return record.launch_id, record.key, record.attempt


def _without_flag(record: Record) -> Record:
    """The Record without the flag on its memory, and without a peak that this has raised too much."""
    m = record.measurement
    held = [float(flag.removesuffix(HELD_FLAG)) for flag in m.flags if flag.endswith(HELD_FLAG)] if m else []
    if m is None or not held:
        return record
    rest = [flag for flag in m.flags if not flag.endswith(HELD_FLAG)]
    kept = record.model_copy(update={"measurement": m.model_copy(update={"flags": rest})})
    return _without_peak(kept) if max(held) > TOLD * max(m.peak_memory_gib, default=0.0) else kept


def _without_peak(record: Record) -> Record:
    if record.measurement is None:
        return record
    return record.model_copy(update={"measurement": record.measurement.model_copy(update={"peak_memory_gib": []})})
