"""Whether Records can be believed: each against its schema, its own physics, its key, and the
commit that it names.

`python -m multigpu verify [FOLDER]` reads a folder as its files have it, prints counts and
offenders, and fails on any that `data/exceptions.csv` does not list. `workflow/measured_again.py`
measures a random sample once more.
"""

import contextlib
import csv
import hashlib
import json
import os
import subprocess
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from multigpu import paths
from multigpu.analysis.physics import beside_others, date_fault, physics
from multigpu.records.archive import Name, archives_in
from multigpu.records.base import Kept
from multigpu.records.collective import CollectiveRecord
from multigpu.records.record import Record
from multigpu.records.store import RECORD_KINDS, held_in, loose_in, parsed
from multigpu.spec.schema import refusal
from multigpu.workloads.own.description import know

EXCEPTIONS = paths.REPOSITORY / "data" / "exceptions.csv"
COMMIT, TREE, SCHEMA = "commit not in history", "changed tree", "older schema"
# faults that an exception may name: never one of physics, key or bytes
FORGIVEN = (COMMIT, TREE, SCHEMA)
SHOWN = 20  # offenders that are printed one by one
# by a field, the first that a Record has; of CollectiveRecords `run` names a method
KINDS: dict[str, type[Kept]] = {"run": Record}


class Raw(NamedTuple):
    """One Record: kind, the folders above its own below the root, and where it lies; text None:
    `fault` says why.
    """

    kind: str
    path: Path
    key: str
    attempt: int
    text: bytes | None
    fault: str = ""

    @property
    def record(self) -> dict[str, Any] | None:
        """Its content as JSON, parsed anew; None: it is no object of JSON."""
        try:
            return None if self.text is None else dict(json.loads(self.text))
        except (ValueError, TypeError, RecursionError):
            return None


def raw_records(root: Path) -> Iterator[Raw]:
    """Every Record below a folder, all attempts, loose and packed; what cannot be read has a fault
    and stops nothing.
    """
    for folder, below, _ in os.walk(root):
        below.sort()
        place = Path(folder)
        kind = "/".join(place.relative_to(root).parts[:-1]) or place.name
        loose, broken = loose_in(place)
        found = sorted(loose)
        for archive in archives_in(place):
            try:
                found += held_in(archive)
            except ValueError as error:
                broken.append(str(error))
        yield from (Raw(kind, place, "", 0, None, said) for said in broken)
        for held in found:
            text, fault = None, ""
            try:
                text = held.text()
            except (OSError, EOFError, zlib.error, ValueError) as error:
                fault = f"{held} cannot be read: {error}"
            yield Raw(kind, held.path, held.key, held.attempt, text, fault)


class Fault(NamedTuple):
    """A defect of one Record or file, in a few words, and more of it; commit: that it names."""

    raw: Raw
    what: str
    detail: str = ""
    commit: str = ""

    def __str__(self) -> str:
        return (
            f"{self.raw.kind} {self.raw.key or self.raw.path.name}:"
            f" {self.what}{f' ({self.detail})' if self.detail else ''}"
        )


class Report(NamedTuple):
    """Counts of what was checked, by kind of folder; what is wrong; and what is, and is excepted,
    by commit and fault.
    """

    checked: Counter[str]
    faults: list[Fault]
    excepted: Counter[tuple[str, str]]

    @property
    def suspects(self) -> set[tuple[Path, Name]]:
        """Where what may be no Record lies, and which it is."""
        return {(one.raw.path, one.raw[2:4]) for one in self.faults}


def kind_of(record: Mapping[str, Any]) -> type[Kept] | None:
    """The class of Record that this content is of, if it is of any."""
    run = record.get("run")
    if isinstance(run, dict) and "method" in run:
        return CollectiveRecord
    added = {field: kind for one in RECORD_KINDS.values() for field, kind in one.records.items()}
    return next((kind for field, kind in {**added, **KINDS}.items() if field in record), None)


def verify(
    root: Path,
    exceptions: Path | None = None,
    kinds: Mapping[Path, type[Kept]] = MappingProxyType({}),
) -> Report:
    """Check every Record below a folder, all attempts. exceptions: rows of (commit, fault, records,
    why), for so many Records. kinds: which kind of Record alone a folder may hold.
    """
    for comparison in sorted(root.rglob("comparison.json")):
        know(comparison.parent / "jobs")  # which its Records name as their models
    known, counts, found = history(), Counter[str](), list[Fault]()
    runs, usual = list[tuple[Raw, Record]](), dict[Path, type[Kept]]()
    for raw in raw_records(root):
        counts[raw.kind] += 1
        folder = raw.path.parent
        record, faults = _read(raw, usual)
        found += faults
        if record is None:
            continue
        if folder in kinds and (type(record), record.place) != (kinds[folder], folder.name):
            found.append(Fault(raw, "it does not belong into its folder", record.place))
        found += _checked(raw, record, known)
        if isinstance(record, Record):
            runs.append((raw, record))
    clocks = highest_clocks(record for _, record in runs)
    for raw, run in runs:
        if run.status == "ok":
            found += (Fault(raw, what, detail) for what, detail in physics(run, clocks))
    found += (Fault(raw, what, detail) for raw, what, detail in beside_others(runs))
    return Report(counts, *listed(found, exceptions))


def _read(raw: Raw, usual: dict[Path, type[Kept]]) -> tuple[Any, list[Fault]]:
    """The Record, or None and why it is none. usual: folder -> the kind that its Records had so
    far, as which one is read quickest.
    """
    if raw.text is None:
        return None, [Fault(raw, "cannot be read", raw.fault)]
    with contextlib.suppress(ValueError):
        return parsed(usual.get(raw.path.parent, Record), raw.text), []
    if (content := raw.record) is None:
        return None, [Fault(raw, "cannot be read", f"{raw.path} holds no object of JSON")]
    if (kind := kind_of(content)) is None:
        return None, [Fault(raw, "cannot be read", "it is of no kind of Record")]
    try:
        usual[raw.path.parent] = kind
        return kind.model_validate(content, strict=False), []
    except ValidationError as error:
        today = kind.model_fields.get("schema_version")
        older = today is not None and content.get("schema_version", today.default) < today.default
        what = SCHEMA if older else "not as its schema wants it"
        return None, [Fault(raw, what, refusal(error), str(content.get("commit", "")))]


def _checked(raw: Raw, record: Any, known: Mapping[str, datetime] | None) -> Iterator[Fault]:
    """Yield what is wrong with any Record: its key, attempt, commit or date."""
    if not raw.key == record.key == record.own_key:
        said = f"{record.own_key} by its content"
        yield Fault(raw, "its key is not that of its content", said)
    if raw.attempt != record.attempt:
        yield Fault(raw, "its attempt is not that of its name")
    # a commit of the history has exactly this source
    if not (known and record.source_tree in known):
        if not record.clean_tree:
            yield Fault(raw, TREE, record.commit[:10], record.commit)
        if known is not None and record.commit[:7] not in known:
            yield Fault(raw, COMMIT, record.commit[:10], record.commit)
    if said := date_fault(record, known or {}):
        yield Fault(raw, "a date that cannot be", said)


def altered_files(root: Path) -> Iterator[str]:
    """Yield what became of files of Records since `manifest.csv` of this folder was written: gone,
    or of another content; new ones are none of its business.
    """
    listed_in = root / "manifest.csv"
    for row in csv.DictReader(listed_in.read_text().splitlines()) if listed_in.exists() else ():
        file = root / row["path"]
        if not file.is_file():
            yield f"{file} is gone, and {listed_in} lists it"
        elif hashlib.sha256(file.read_bytes()).hexdigest() != row["sha256"]:
            yield f"{file} is not what it was when {listed_in} was written"


def highest_clocks(records: Iterable[Record]) -> dict[str, int]:
    """The highest clock at which each kind of GPU was found, in MHz."""
    found: dict[str, int] = {}
    for record in records:
        states = record.measurement.device_states if record.measurement else []
        for gpu in record.machine.gpus[:1]:
            found[gpu] = max([found.get(gpu, 0), *(state.sm_clock_mhz for state in states)])
    return found


@lru_cache
def history() -> Mapping[str, datetime] | None:
    """When each commit of this repository's history was made, by its first seven digits and by what
    git calls its package; None without git.
    """

    def told(*words: str, given: str = "") -> list[str]:
        return subprocess.run(
            ["git", *words],
            cwd=paths.REPOSITORY,
            input=given,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()

    try:
        commits = [line.split() for line in told("log", "--format=%H %ct")]
        trees = told(
            "cat-file",
            "--batch-check=%(objectname)",
            given="".join(f"{commit}:src/multigpu\n" for commit, _ in commits),
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    made = [datetime.fromtimestamp(int(seconds), UTC) for _, seconds in commits]
    by_tree = {tree.split()[0]: at for tree, at in zip(trees, made, strict=True)}
    return by_tree | {own[:7]: at for (own, _), at in zip(commits, made, strict=True)} or None


def listed(faults: list[Fault], path: Path | None) -> tuple[list[Fault], Counter[tuple[str, str]]]:
    """The faults that no row of exceptions allows, and how many of the others there are by (commit,
    fault); a ValueError for a bad row.
    """
    allowed, left, excepted = Counter[tuple[str, str]](), list[Fault](), Counter[tuple[str, str]]()
    for row in csv.DictReader(path.read_text().splitlines()) if path and path.exists() else ():
        if row["fault"] not in FORGIVEN or not row["why"]:
            raise ValueError(
                f"{row['fault']!r} of {row['commit']} cannot be excepted: only"
                f" {', '.join(FORGIVEN)}, with a reason: {path}"
            )
        allowed[row["commit"], row["fault"]] += int(row["records"])
    for fault in faults:
        name = (fault.commit[:7], fault.what)
        if allowed[name] > 0:
            allowed[name] -= 1
            excepted[name] += 1
        else:
            left.append(fault)
    return left, excepted


def lines(report: Report) -> Iterator[str]:
    """Yield the printed lines: counts, exceptions, offenders."""
    yield (
        f"{report.checked.total():,} Records:"
        f" {', '.join(f'{count:,} in {kind}' for kind, count in sorted(report.checked.items()))}"
    )
    for (commit, what), count in sorted(report.excepted.items()):
        yield f"excepted: {count} of {commit}: {what}"
    if history() is None:
        yield "not checked: commits: no git history here"
    for what, count in Counter(fault.what for fault in report.faults).most_common():
        yield f"{count} with a fault: {what}"
    yield from map(str, report.faults[:SHOWN])
    if len(report.faults) > SHOWN:
        yield f"and {len(report.faults) - SHOWN} more"
    yield "nothing else is wrong" if not report.faults else "these cannot be believed as they are"
