"""Several machines with the same GPUs, read as one: a Run that needs nothing but GPUs is measured once for all of them.

A host of eight GPUs and a workstation with two of the same kind differ in cores, memory and the number of links. Where a Run's step uses
none of these and never waits for its host, its figure belongs to the kind of GPU, and measuring it again on each machine would tell
nothing. Which Runs these are is said here; whether it is true is measured (grid `same_gpus`) and shown (`analysis.same_gpus`). Steps that a
host launches kernel by kernel, and too late, are another figure on every host.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

import numpy as np

from multigpu.conditions import ON_DEVICE
from multigpu.measure.machine import Machine, framework_version
from multigpu.measure.point import Point
from multigpu.placements import find_placement
from multigpu.record import Record
from multigpu.run import Run

OF_THE_HOST = ("input_workers", "staging", "image_dtype", "device_ids", "peer_access", "host_cores", "feed", "data")
"""Fields that, where they are set, make a Run's figure one of the host, of its links or of single GPUs."""


def needs_only_gpus(run: Run) -> bool:
    """Whether a step uses nothing of its host but the processes that dispatch it.

    Every part of the placement is on GPUs, batches stay on the device, and nothing about the host is asked for. Whether the host was
    fast enough at dispatching only its Records tell (`kept_ahead`).
    """
    on_gpus = run.device_type == "cuda" and not find_placement(run.placement).uses_host
    asked = any(getattr(run, name) is not None for name in OF_THE_HOST) or run.prefetch > 0
    return on_gpus and run.inputs in ON_DEVICE and not asked


def kind_of(machine: Machine) -> str:
    """What the GPUs of a single host are, "" where it has none, where they differ, or where the machine is several hosts."""
    kinds = set(machine.gpus)
    return kinds.pop() if len(kinds) == 1 and machine.hosts == 1 else ""


STEADY = 0.01
"""A step that waits for its host varies: the middle half of its times is wider than this share of their median."""

ALIKE = 0.02
"""Nor is such a step as long in every launch: a Run that waits differs by more than this between launches, though each be steady."""


def step_width(record: Record) -> float:
    """Width of the middle half of the slowest replica's timed steps over their median (NaN: no steps were timed)."""
    if record.measurement is None:
        return math.nan
    timed = [times[record.run.warmup_steps :] for times in record.measurement.step_time_s]
    slowest = np.asarray(max(timed, key=sum, default=[]), dtype=float)
    if not slowest.size:
        return math.nan
    low, middle, high = np.percentile(slowest, (25, 50, 75))
    return float((high - low) / middle)


def kept_ahead(repeats: Sequence[Record]) -> bool:
    """Whether one machine's Records of a Run show no waiting for its host.

    That is so of whole steps as one CUDA graph, and of replicas' steps that are alike within and between launches (`is_steady`); where a
    model is spread over devices, these wait for each other, and steps do not tell whether for the host too. Traced Records follow what the
    others say, if there are any. Of Runs that were not measured, one that lacked memory tells of the GPU, any other of its machine alone.
    """
    measured = [record for record in repeats if record.status == "ok"]
    if not measured:
        return all(record.status == "out_of_memory" for record in repeats)
    run = measured[0].run
    if run.execution in ("captured", "compiled_captured") and run.processes == "per_device":
        return True
    untraced = [record for record in measured if not record.run.traced_steps]
    return find_placement(run.placement).compute == "replica" and is_steady(untraced or measured)


def is_steady(measured: Sequence[Record]) -> bool:
    """Whether a Run's steps are alike: between repeats of two launches at least (`ALIKE`), and within its repeats, in their median, where
    the clock of steps is the device's (`STEADY`).

    One launch tells nothing: a host may be late by as much at every step, and was, with steps of ResNet-50 that varied by 0.2% within
    launches and by 18% between them.
    """
    found = [record.measurement for record in measured if record.measurement]
    if len({record.launch_id for record in measured}) < 2 or not alike(measured):
        return False
    return any(one.step_clock != "device" for one in found) or median(step_width(record) for record in measured) <= STEADY


def alike(measured: Sequence[Record]) -> bool:
    """Whether the repeats of one Run took equally long, as far as they were measured (`ALIKE`)."""
    steps = [one.measurement.wall_s / one.run.timed_steps for one in measured if one.status == "ok" and one.measurement]
    return not steps or max(steps) - min(steps) <= ALIKE * median(steps)


def untraced_digest(run: Run) -> str:
    """The same for a Run and for that Run under the profiler, however many steps of each were timed."""
    return run.model_copy(update={"traced_steps": 0, "traced_from": None, "warmup_steps": 1, "timed_steps": 1}).digest


def as_one(records: Iterable[Record]) -> list[Record]:
    """The Records, those of machines with the same GPUs under one machine's name as far as their figures are the GPUs' own.

    That is so for a Run that needs only GPUs (`needs_only_gpus`) and did not wait for its host (`kept_ahead`), unless that machine itself
    has taken another time for it (`alike`, over the repeats of both): then one of the two waited. The name is, model by model, of the
    machine that shows it best (`leading_machine`). What it has Records of itself (Run and repeat) counts alone; of several others the one
    with most GPUs does. A renamed Record's `machine.own_name` says where it was measured, its key and all else stay.
    """
    every = list(records)
    main = _leading(every)
    held = {(record.machine.name, record.run.digest, record.framework_version, record.repeat) for record in every}
    # (machine it would join, its own, Run, version of the framework) -> repeats
    candidates: dict[tuple[str, str, str, str], list[Record]] = {}
    there: dict[tuple[str, str, str], list[Record]] = {}  # (machine, Run, version) -> repeats without a profiler
    for record in every:
        if not record.run.traced_steps:
            there.setdefault((record.machine.name, untraced_digest(record.run), record.framework_version), []).append(record)
        name, own = main.get((kind_of(record.machine), record.run.workload, record.run.model), ""), record.machine.name
        if name not in ("", own):
            candidates.setdefault((name, own, untraced_digest(record.run), record.framework_version), []).append(record)
    joins: dict[tuple[str, str], str] = {}
    taken: set[tuple[str, str, str, int]] = set()
    for (name, own, run, version), repeats in sorted(candidates.items(), key=lambda item: (-len(item[1][0].machine.gpus), item[0])):
        theirs, ours = there.get((name, run, version), []), there.get((own, run, version), [])
        if needs_only_gpus(repeats[0].run) and kept_ahead(repeats) and (not theirs or alike([*theirs, *ours])):
            for record in repeats:
                point = (name, record.run.digest, version, record.repeat)
                # later attempts of one point come from the machine that has the first
                if point not in held and (point not in taken or (own, record.key) in joins):
                    taken.add(point)
                    joins[own, record.key] = name
    return [_under(record, joins.get((record.machine.name, record.key))) for record in every]


def _under(record: Record, name: str | None) -> Record:
    """The Record under another machine's name (None: its own)."""
    if name is None:
        return record
    return record.model_copy(update={"machine": record.machine.model_copy(update={"name": name, "own_name": record.machine.name})})


ENOUGH = 1 / 3
"""A machine with fewer measurements of a model than this share of another's shows too little of it, on however many GPUs."""


def leading_machine(measured: Iterable[tuple[str, int]]) -> str:
    """Of machines that measured one model, the one that shows it on the most devices; of equals the one with more measurements.

    It must have measured it often enough (`ENOUGH`), and on one device, where a scaling line begins, if such a machine has.

    Args:
        measured: (machine, devices) of each measurement, at least one.
    """
    counts: dict[str, Counter[int]] = {}
    for name, devices in measured:
        counts.setdefault(name, Counter())[devices] += 1
    often = max(found.total() for found in counts.values())
    enough = {name: found for name, found in counts.items() if found.total() >= ENOUGH * often}
    begun = {name: found for name, found in enough.items() if found[1]} or enough
    return max(begun, key=lambda name: (max(begun[name]), begun[name].total(), name))


def _leading(records: Sequence[Record]) -> dict[tuple[str, str, str], str]:
    """(kind of GPU, workload, model) -> the machine that shows it best."""
    measured: dict[tuple[str, str, str], list[tuple[str, int]]] = {}
    for one in records:
        kind = kind_of(one.machine)
        if kind and one.status == "ok":
            measured.setdefault((kind, one.run.workload, one.run.model), []).append((one.machine.name, one.run.devices))
    return {key: leading_machine(found) for key, found in measured.items()}


def still_missing(
    points: Sequence[Point], records: Iterable[Record], here: Machine, installed: Mapping[str, str] | None = None
) -> list[Point]:
    """The points that this machine can add to what machines with the same GPUs have measured.

    Left out: what needs more GPUs than are here; what another of them has a Record of; and, where another has Records of the workload,
    what would count on that machine alone, because it needs more than GPUs. Another version of a framework is another measurement.

    Args:
        installed: package -> version, of this machine (None: as found).
    """
    others = [one for one in records if kind_of(one.machine) == kind_of(here) != "" and one.machine.name != here.name]
    known = {(one.run.digest, one.repeat, one.framework_version) for one in others}
    version = {name: framework_version(name, installed) for name in {point.run.framework for point in points}}
    elsewhere = {one.run.workload for one in others}
    return [
        point
        for point in points
        if (point.run.device_type != "cuda" or point.run.devices <= len(here.gpus))
        and (point.run.digest, point.repeat, version[point.run.framework]) not in known
        and (needs_only_gpus(point.run) or point.run.workload not in elsewhere)
    ]


def other_machine(records: Iterable[Record], machines: Iterable[str], counts: Callable[[Record], bool]) -> str:
    """Another machine with the GPUs of these, the one that measured most Runs of those that `counts` says yes to; "" without any.

    Args:
        records: as they were measured or `as_one`; what counts under another's name is of the machine that measured it.
    """
    every, known = list(records), set(machines)
    kinds = {kind_of(record.machine) for record in every if record.machine.name in known} - {""}
    runs: dict[str, set[str]] = {}
    for record in every:
        name = record.machine.own_name or record.machine.name
        if name not in known and kind_of(record.machine) in kinds and record.status == "ok" and counts(record):
            runs.setdefault(name, set()).add(record.run.digest)
    return max(sorted(runs), key=lambda name: len(runs[name]), default="")
