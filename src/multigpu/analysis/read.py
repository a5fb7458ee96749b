"""Read Records for a page: the Records of one folder, what is withdrawn left out, pooled into
points once and kept for all pages of a build. Records of different machines are never pooled,
borrowed or divided: all of a study but `everywhere` is of one machine.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import pandas as pd

from multigpu import paths
from multigpu.analysis import collectives
from multigpu.analysis.frame import COLUMNS, frame_of, typed_frame
from multigpu.analysis.machines import machines_frame
from multigpu.analysis.points import Missing, points
from multigpu.analysis.traces import causes_frame, with_untraced_steps
from multigpu.machine.machine import Machine
from multigpu.records.cache import cached_on_disk
from multigpu.records.published import published
from multigpu.records.record import HELD_FLAG, Record, RecordStore
from multigpu.records.store import stamp_of

HELD_SHARE = 0.05
"""A peak of which a Run says that more than this share was there before it began is not read."""


@lru_cache(maxsize=4)
def withdrawn(data: Path) -> dict[tuple[str, int], str]:
    """(key, attempt) -> what of that Record is not read ("all", or "peak_memory_gib"), as
    `data/withdrawn.csv` says.
    """
    path = data / paths.WITHDRAWN
    return dict(pd.read_csv(path, index_col=["key", "attempt"])["what"]) if path.exists() else {}


def _without_peak(record: Record, what: str) -> Record:
    """Without a peak that is withdrawn or that earlier Runs of the process had raised."""
    measured = record.measurement
    if measured is None:
        return record
    held = [
        float(flag.removesuffix(HELD_FLAG)) for flag in measured.flags if flag.endswith(HELD_FLAG)
    ]
    if not held and what != "peak_memory_gib":
        return record
    kept: dict[str, Any] = {
        "flags": [flag for flag in measured.flags if not flag.endswith(HELD_FLAG)]
    }
    if what == "peak_memory_gib" or max(held) > HELD_SHARE * max(
        measured.peak_memory_gib, default=0.0
    ):
        kept["peak_memory_gib"] = []
    return record.model_copy(update={"measurement": measured.model_copy(update=kept)})


def frames(runs: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(a row a Record, a row a point) of a folder of Runs; read once for each state of its files
    (`stamp_of`).
    """
    return _frames(runs, stamp_of(runs))


@lru_cache(maxsize=2)
def _frames(runs: Path, _: object) -> tuple[pd.DataFrame, pd.DataFrame]:
    return cached_on_disk("points", [runs], lambda: (frame := _rows(runs), points(frame)))


def _rows(runs: Path) -> pd.DataFrame:
    """A row a Record of the folder, and of those that were published with the package."""
    own, others = frame_of(records_of(runs)), published("runs", runs)
    if not others:
        return own
    return pd.concat([own, typed_frame(others, COLUMNS)], ignore_index=True)


def records_of(runs: Path, machine: str = "") -> list[Record]:
    """The Records of a folder of Runs as they are read, of all machines or of this one. ValueError:
    no folder, or no Record.
    """
    stamp = stamp_of(runs)
    places = [machine] if machine else RecordStore(runs).places()
    return [record for place in places for record in _records(runs, place, stamp)]


@lru_cache(maxsize=16)
def _records(runs: Path, machine: str, _: object) -> tuple[Record, ...]:
    left_out = withdrawn(runs.parent)
    kept = (
        (record, left_out.get((record.key, record.attempt), ""))
        for record in RecordStore(runs).of(machine)
    )
    return tuple(_without_peak(record, what) for record, what in kept if what != "all")


def timed_steps(records: Iterable[Record]) -> dict[str, tuple[float, ...]]:
    """Return key -> the first rank's timed steps, s, of each Record that was measured."""
    return {
        record.key: tuple(record.measurement.step_time_s[0][record.run.warmup_steps :])
        for record in records
        if record.measurement is not None and record.measurement.step_time_s
    }


def machines_in(records: Iterable[Record]) -> dict[str, Machine]:
    """Return each machine of the Records by its name, as its first Record says."""
    found: dict[str, Machine] = {}
    for record in records:
        found.setdefault(record.machine.name, record.machine)
    return found


@dataclass(frozen=True)
class Study:
    """The Records of a folder (with runs/, collectives/ and the others), as one page
    speaks of them: `machine` is the page's.
    """

    data: Path
    machine: str

    @classmethod
    def of_runs(cls, runs: Path) -> Self:
        """The study whose Runs lie in this folder, of no machine yet."""
        return cls(runs.parent if runs.name == "runs" else runs, "")

    @property
    def runs(self) -> Path:
        return paths.kind_in(self.data) if self.data.is_dir() else self.data / "runs"

    @cached_property
    def everywhere(self) -> pd.DataFrame:
        """The points of all machines, each of one machine."""
        return frames(self.runs)[1]

    @cached_property
    def rows(self) -> pd.DataFrame:
        """A row a Record of all machines."""
        return frames(self.runs)[0]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row a Record of this machine."""
        return self.rows[self.rows["machine"].eq(self.machine)]

    @cached_property
    def points(self) -> pd.DataFrame:
        """A row a point of this machine (`points.points`)."""
        return self.everywhere[self.everywhere["machine"].eq(self.machine)]

    @cached_property
    def records(self) -> list[Record]:
        """The Records of this machine, for what no frame holds."""
        return records_of(self.runs, self.machine)

    @cached_property
    def steps(self) -> dict[str, tuple[float, ...]]:
        """The timed steps of this machine's Records; of published ones those of one device."""
        others = {row["key"]: tuple(row["steps_s"]) for row in published("steps", self.runs)}
        return others | timed_steps(self.records)

    @cached_property
    def host(self) -> Machine:
        """The machine, as its first Record says."""
        if own := machines_in(self.records):
            return own[self.machine]
        rows = {row["name"]: row for row in published("machines", self.runs)}
        return Machine(**rows[self.machine])

    @cached_property
    def traces(self) -> pd.DataFrame:
        """A row a traced Run of this machine: its point and where its step's time goes
        (`traces.causes_frame`).
        """
        return cached_on_disk(
            f"traces-{self.machine}",
            [self.runs],
            lambda: causes_frame(with_untraced_steps(self.records)),
        )

    def on(self, machine: str) -> Self:
        """The same Records as another machine's page would see them, for a sentence that names
        it.
        """
        return replace(self, machine=machine)

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """A row a point of this machine's all-reduces alone (`collectives.points`)."""
        found = collectives.points(collectives.collectives_frame(self.data / "collectives"))
        return found[found["machine"].eq(self.machine)]

    def header(self) -> str:
        """Return the line that says what a page speaks of: the machine, versions, how many Records
        and from when.
        """
        if self.frame.empty:
            return f"*No Record in {self.data.name}/ yet: run `make study`.*"
        every = cached_on_disk(
            "machines", [self.runs], lambda: machines_frame(records_of(self.runs))
        )
        held = every.set_index("machine", drop=False).loc[self.machine]
        if held["gpus"]:
            what = f"{held['gpus']} x {held['gpu']}"
        else:
            what = f"{held['cores']} cores of {held['cpu']}, no GPU"
        versions = {
            "PyTorch": held["torch"],
            "CUDA": held["cuda"],
            "TensorFlow": held["tensorflow"],
        }
        with_ = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        days = f"from {held['first_day']} to {held['last_day']}"
        return (
            f"*Measured on {what} ({self.machine}; {with_}): {held['records']:,} Records {days}.*"
        )


def machines_of(everywhere: pd.DataFrame) -> pd.DataFrame:
    """The machines of the points: gpu, devices (the most that a point used), points; the richest
    first (GPUs, devices, points).
    """
    ok = everywhere[everywhere["n"] > 0]
    table = ok.groupby("machine").agg(
        gpu=("device_type", lambda kinds: "cuda" in set(kinds)),
        devices=("devices", "max"),
        points=("n", "size"),
    )
    return table.sort_values(
        ["gpu", "devices", "points"], ascending=False, kind="stable"
    ).reset_index()


def read_study(records: str = "data", machine: str = "") -> Study:
    """The study in the folder `records`, as a page of this machine sees it; of a machine that is
    not there, the richest speaks.

    records: a folder as `--records` names one: of several kinds, or of Runs alone.
    """
    data = (paths.REPOSITORY / records).resolve()
    if data.name == "runs":
        data = data.parent
    if not data.is_dir() and data != paths.DATA:
        raise ValueError(
            f"the folder of Records {records!r} does not exist: name one that holds runs/, or leave"
            " it out for the study's own"
        )
    study = Study(data, machine)
    known = machines_of(study.everywhere)
    if machine not in set(known["machine"]):
        machine = known["machine"].iloc[0] if len(known) else machine
    return study.on(machine)


def need(table: pd.DataFrame, what: str) -> pd.DataFrame:
    """The table itself, if it has rows. Missing: it has none; the sentence says what is not
    there.
    """
    if table.empty:
        raise Missing(f"{what} was not measured on this machine")
    return table
