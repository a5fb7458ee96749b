"""Whether Records can be believed: each against its schema, its own physics, its key, and the commit that it names.

`python -m multigpu verify [FOLDER]` reads a folder as its files have it (the study's own by default, or a stranger's), prints counts and
offenders, and fails on any that `data/exceptions.csv` does not list. `--measure N` measures a random sample once more on this machine.
"""

import csv
import json
import math
import os
import subprocess
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from multigpu import paths
from multigpu.analysis.limits import bound_units_per_s
from multigpu.archive import archives_in
from multigpu.collectives.record import CollectiveRecord
from multigpu.kept import Kept
from multigpu.record import Record
from multigpu.stages.record import StageRecord
from multigpu.store import Held, held_in, loose_in, misnamed_in
from multigpu.synchrony.averaging import AveragingRecord
from multigpu.synchrony.downpour import DownpourRecord
from multigpu.synchrony.record import SynchronyRecord
from multigpu.training.record import TrainingRecord

EXCEPTIONS = paths.REPOSITORY / "data" / "exceptions.csv"
COMMIT, TREE, SCHEMA = "commit not in history", "changed tree", "older schema"
FORGIVEN = (COMMIT, TREE, SCHEMA)
"""Faults that an exception may name: never one of physics, key or bytes."""
SHOWN = 20  # offenders that are printed one by one
THROTTLED = 0.6  # of the highest clock of such GPUs in the folder: below it one was slowed by more than a busy one's power limit does
BEYOND = 1.02  # a rate over its bound, and device time over wall clock: clocks and measured ceilings differ by a percent


KINDS: dict[str, type[Kept]] = {
    "training": TrainingRecord,
    "predictions": StageRecord,
    "joint": AveragingRecord,
    "shard_updates": DownpourRecord,
    "experiment": SynchronyRecord,
    "run": Record,
}
"""By a field, the first that a Record has; of CollectiveRecords `run` names a method."""


class Raw(NamedTuple):
    """One Record: kind, the folders above its own below the root, and the file that it lies in; record None: `fault` says why."""

    kind: str
    path: Path
    key: str
    attempt: int
    record: dict[str, Any] | None
    fault: str = ""


def raw_records(root: Path) -> Iterator[Raw]:
    """Every Record below a folder, all attempts, loose and packed; what cannot be read has a fault and stops nothing."""
    for folder, below, _ in os.walk(root):
        below.sort()
        place = Path(folder)
        kind = "/".join(place.relative_to(root).parts[:-1]) or place.name
        for archive in archives_in(place):
            try:
                found = list(held_in(archive))
            except ValueError as error:
                yield Raw(kind, archive, "", 0, None, str(error))
                continue
            yield from (_read(kind, held) for held in found)
        for name in sorted(misnamed_in(place)):
            yield Raw(kind, place / name, "", 0, None, f"{place / name} is no Record: the name of one is <key>.<attempt>.json.gz")
        yield from (_read(kind, held) for held in sorted(loose_in(place)))


def _read(kind: str, held: Held) -> Raw:
    where = (kind, held.path, held.key, held.attempt)
    try:
        record = json.loads(held.text())
    except (OSError, EOFError, zlib.error) as error:
        return Raw(*where, None, f"{held.path} cannot be unpacked: {error}")
    except ValueError as error:
        return Raw(*where, None, f"{held.path} holds no JSON under {held.key}: {error}")
    return Raw(*where, record) if isinstance(record, dict) else Raw(*where, None, f"{held.path} holds no Record under {held.key}")


class Fault(NamedTuple):
    """What is wrong with one Record (or with a file), in a few words, and more of it."""

    raw: Raw
    what: str
    detail: str = ""

    def __str__(self) -> str:
        name = self.raw.key or self.raw.path.name
        return f"{self.raw.kind} {name}: {self.what}{f' ({self.detail})' if self.detail else ''}"


class Report(NamedTuple):
    """What was checked, by kind of folder; faults, of which `excepted` are listed; and what could not be checked."""

    checked: Counter[str]
    faults: list[Fault]
    excepted: Counter[tuple[str, str]]
    unchecked: list[str]


def kind_of(record: Mapping[str, Any]) -> type[Kept]:
    """The class of Record that this content is of; a ValueError if it is of none."""
    if "method" in (record.get("run") or {}):
        return CollectiveRecord
    if kind := next((kind for field, kind in KINDS.items() if field in record), None):
        return kind
    raise ValueError("it is of no kind of Record")


def verify(root: Path, exceptions: Path | None = None) -> Report:
    """Check every Record below a folder, all attempts.

    exceptions: rows of (commit, fault, records, why); more Records than a row names are not excepted.
    """
    known = history()
    unchecked = [] if known is not None else ["commits: no git history here"]
    every = list(raw_records(root))
    clocks = highest_clocks(every)
    found = [fault for raw in every for fault in faults_of(raw, known, clocks)]
    left, excepted = listed(found, exceptions)
    return Report(Counter(raw.kind for raw in every), left, excepted, unchecked)


def faults_of(raw: Raw, known: frozenset[str] | None, clocks: Mapping[str, int]) -> Iterator[Fault]:
    """All that is wrong with one Record."""
    if raw.record is None:
        yield Fault(raw, "cannot be read", raw.fault)
        return
    try:
        kind = kind_of(raw.record)
    except ValueError as error:
        yield Fault(raw, "not as its schema wants it", str(error))
        return
    try:
        record: Any = kind.model_validate(raw.record, strict=False)
    except ValidationError as error:
        today = kind.model_fields.get("schema_version")
        older = today is not None and raw.record.get("schema_version", today.default) < today.default
        first = error.errors()[0]
        yield Fault(raw, SCHEMA if older else "not as its schema wants it", f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        return
    if not raw.key == record.key == record.own_key:
        yield Fault(raw, "its key is not that of its content", f"{record.own_key} by its content")
    if raw.attempt != record.attempt:
        yield Fault(raw, "its attempt is not that of its name")
    if not (known and record.source_tree in known):  # a commit of the history has exactly this source
        if not record.clean_tree:
            yield Fault(raw, TREE, record.commit[:10])
        if known is not None and record.commit[:7] not in known:
            yield Fault(raw, COMMIT, record.commit[:10])
    if isinstance(record, Record) and record.status == "ok":
        yield from (Fault(raw, what, detail) for what, detail in physics(record, clocks))


def physics(record: Record, clocks: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """What one measured Run contradicts: bounds, bytes, its own clocks, its loss."""
    run, m = record.run, record.measurement
    if m is None:
        yield "ok without a measurement", ""
        return
    if not (m.wall_s > 0 and m.units > 0 and m.padded_units >= m.units):
        yield "no positive time or units", f"{m.units} units in {m.wall_s} s"
        return
    rate = m.units / m.wall_s
    gpu = record.machine.gpus[0] if record.machine.gpus else ""
    moved = {name: count / run.semantics.every for name, count in (m.moved_bytes or {}).items()}
    group = None if run.model_parallel is None else min((n for n in (run.model_parallel, run.copies) if n > 1), default=None)
    bound = bound_units_per_s(run.description, gpu, run.precision, run.devices, m.units / run.timed_steps, moved, group).units_per_s
    if run.device_type == "cuda" and rate > BEYOND * bound:
        yield "a rate above its bound", f"{rate:,.0f} {run.description.unit}/s above {bound:,.0f}"
    if m.moved_bytes is not None and _some(m.moved_bytes) != _some(m.predicted_bytes):
        yield "bytes counted are not those predicted", f"{_some(m.moved_bytes)} and {_some(m.predicted_bytes)}"
    if any(len(steps) != run.warmup_steps + run.timed_steps for steps in m.step_time_s):
        yield "not as many steps as it names", ""
    if m.event_time_s and max(m.event_time_s) > BEYOND * m.wall_s:
        yield "devices' time above the wall clock", f"{max(m.event_time_s):.3f} s above {m.wall_s:.3f} s"
    if not m.loss or m.loss[0] == m.loss[-1] or not any(map(math.isfinite, m.loss)):
        yield "a loss that did not move", ""
    slow = [state.sm_clock_mhz for state in m.device_states if state.sm_clock_mhz < THROTTLED * clocks.get(gpu, 0)]
    if slow:
        yield "a throttled clock", f"{min(slow)} MHz of {clocks[gpu]}"


def _some(moved: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in sorted(moved.items()) if count}


def highest_clocks(every: Iterable[Raw]) -> dict[str, int]:
    """The highest clock at which each kind of GPU was found, in MHz."""
    found: dict[str, int] = {}
    for raw in every:
        record = raw.record or {}
        measurement, gpus = record.get("measurement"), (record.get("machine") or {}).get("gpus")
        if isinstance(measurement, dict) and gpus:
            states = measurement.get("device_states") or []
            found[gpus[0]] = max([found.get(gpus[0], 0), *(int(state.get("sm_clock_mhz", 0)) for state in states)])
    return found


@lru_cache
def history() -> frozenset[str] | None:
    """The first seven digits of every commit that this repository's history holds, and what git calls its package; None without git."""

    def told(*words: str, given: str = "") -> list[str]:
        return subprocess.run(["git", *words], cwd=paths.REPOSITORY, input=given, capture_output=True, text=True, check=True).stdout.split()

    try:
        commits = told("log", "--format=%H")
        trees = told("cat-file", "--batch-check=%(objectname)", given="".join(f"{commit}:src/multigpu\n" for commit in commits))
    except (OSError, subprocess.CalledProcessError):
        return None
    return frozenset([*(commit[:7] for commit in commits), *trees]) or None


def listed(faults: list[Fault], path: Path | None) -> tuple[list[Fault], Counter[tuple[str, str]]]:
    """The faults that no row of exceptions allows, and how many of the others there are by (commit, fault).

    Raises:
        ValueError: a row names a fault that no exception can forgive, or says no reason.
    """
    allowed: Counter[tuple[str, str]] = Counter()
    if path is not None and path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["fault"] not in FORGIVEN or not row["why"]:
                    forgiven = ", ".join(FORGIVEN)
                    raise ValueError(f"{path.name}: {row['fault']!r} of {row['commit']} cannot be excepted: only {forgiven}, with a reason")
                allowed[row["commit"], row["fault"]] += int(row["records"])
    left, excepted = [], Counter[tuple[str, str]]()
    for fault in faults:
        name = (str((fault.raw.record or {}).get("commit", ""))[:7], fault.what)
        if allowed[name] > 0:
            allowed[name] -= 1
            excepted[name] += 1
        else:
            left.append(fault)
    return left, excepted


def lines(report: Report) -> Iterator[str]:
    """What is printed: counts, exceptions, offenders."""
    total = sum(report.checked.values())
    yield f"{total:,} Records: {', '.join(f'{count:,} in {kind}' for kind, count in sorted(report.checked.items()))}"
    for (commit, what), count in sorted(report.excepted.items()):
        yield f"excepted: {count} of {commit}: {what}"
    yield from (f"not checked: {what}" for what in report.unchecked)
    for what, count in Counter(fault.what for fault in report.faults).most_common():
        yield f"{count} with a fault: {what}"
    yield from map(str, report.faults[:SHOWN])
    if len(report.faults) > SHOWN:
        yield f"and {len(report.faults) - SHOWN} more"
    yield "nothing else is wrong" if not report.faults else "these cannot be believed as they are"
