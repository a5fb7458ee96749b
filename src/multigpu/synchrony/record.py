"""SynchronyRecord: what one experiment gave, with the machine it ran on; written once, atomically, and never edited."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from multigpu import paths
from multigpu.kept import Kept, key_of, made_here
from multigpu.measure.machine import this_machine, versions
from multigpu.store import Store
from multigpu.synchrony.curve import Point
from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.server import Accounts, Outcome

SCHEMA_VERSION = 1
SYNCHRONY_VERSION = 1
"""Raised when what a figure means changes, so that old and new never share a table."""
RECORDS = paths.SYNCHRONY
VIRTUAL = "virtual"
"""Folder of the virtual clock's Records: its seconds do not depend on the machine."""
AVERAGING = "averaging"
"""Folder of AveragingRecords (`averaging_record`), which are not of this kind."""
DOWNPOUR = "downpour"
"""Folder of DownpourRecords (`downpour_record`), which are not of this kind either."""
MOST_BINS = 200


class Histogram(BaseModel):
    """counts[i] gradients have a staleness of i * width up to (i + 1) * width - 1, own update not counted; `mean` is exact."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: float
    width: int
    counts: list[int]


class Result(BaseModel):
    """The figures of one run. Times in seconds of the experiment's clock.

    updates, gradients, samples: applied over the whole run, those before a resumed checkpoint included.
    measured_updates: of this process's part, over which the times are taken: update_time_s is their mean seconds per update,
        block_times_s the same in up to 20 successive parts, interval_quantiles_s the 5, 25, 50, 75 and 95% quantiles of single intervals.
    accounts: see `server.Accounts`; parameters: their number, to turn its vectors into bytes (`received_bytes`, ...).
    curve: loss and error against time, thinned to the experiment's evaluations.
    fingerprint: of the parameters' bytes at the end; equal runs have equal fingerprints.
    batch_times_s, server_time_s: of a real run, see `server.Outcome`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    end_s: float
    updates: int
    gradients: int
    samples: int | None
    measured_updates: int
    update_time_s: float
    block_times_s: list[float]
    interval_quantiles_s: list[float]
    staleness: Histogram
    accounts: Accounts
    parameters: int
    curve: list[Point]
    fingerprint: str
    notes: list[str] = []
    parameter_bytes: int = 8
    batch_times_s: list[list[float]] = []
    server_time_s: float | None = None

    @property
    def received_bytes(self) -> int:
        """That reached the server."""
        return self.accounts.received * self.parameters * self.parameter_bytes

    @property
    def sent_bytes(self) -> int:
        """That left the server."""
        return self.accounts.sent * self.parameters * self.parameter_bytes

    @property
    def held_bytes(self) -> int:
        """Most that parameters took in the server's memory, if it keeps those of every batch under way."""
        return self.accounts.versions_held * self.parameters * self.parameter_bytes

    @property
    def diverged(self) -> bool:
        return bool(self.curve) and not np.isfinite(self.curve[-1].loss)


class SynchronyRecord(Kept):
    """One experiment's result, or the reason why there is none. Status "incomplete": it ended before its budget."""

    schema_version: int = SCHEMA_VERSION
    experiment: Experiment
    repeat: int
    status: Literal["ok", "incomplete", "failed"]
    reason: str = ""
    synchrony_version: int = SYNCHRONY_VERSION
    result: Result | None = None

    @property
    def place(self) -> str:
        return _place(self.experiment, self.machine.name)


def record_key(experiment: Experiment, repeat: int, machine: str) -> str:
    """The name of a result: what has a Record under this key is not run again. The virtual clock's do not depend on the machine."""
    return key_of(experiment.digest, repeat, _place(experiment, machine), SYNCHRONY_VERSION)


def _place(experiment: Experiment, machine: str) -> str:
    return VIRTUAL if experiment.clock == "virtual" else machine


def make_record(experiment: Experiment, outcome: Outcome | None, *, repeat: int = 0, attempt: int = 0, reason: str = "") -> SynchronyRecord:
    """The Record of an outcome; of none, with the `reason`, if the run failed."""
    machine = this_machine()
    spent = outcome is not None and _budget_spent(outcome)
    if outcome is not None and not spent:
        reason = reason or "; ".join(outcome.notes)
    return SynchronyRecord(
        key=record_key(experiment, repeat, machine.name),
        attempt=attempt,
        experiment=experiment,
        repeat=repeat,
        status="failed" if outcome is None else "ok" if spent else "incomplete",
        reason=reason,
        result=None if outcome is None else summarise(outcome),
        **made_here(versions(), machine),
    )


def _budget_spent(outcome: Outcome) -> bool:
    e = outcome.experiment
    updates = outcome.first_version + len(outcome.update_times_s)
    return (e.updates is not None and updates >= e.updates) or (e.time_s is not None and outcome.end_s >= e.time_s)


def summarise(outcome: Outcome) -> Result:
    """The figures of `outcome`, thinned: a few kilobytes whatever the number of updates and workers."""
    experiment, count = outcome.experiment, len(outcome.update_times_s)
    updates = outcome.first_version + count
    gradients = updates * experiment.gradients_per_update
    spent_s = outcome.update_times_s[-1] - outcome.start_s if count else float("nan")
    vector = outcome.parameters
    return Result(
        end_s=outcome.end_s,
        updates=updates,
        gradients=gradients,
        samples=gradients * experiment.problem.batch_size if experiment.problem else None,
        measured_updates=count,
        update_time_s=spent_s / count if count else float("nan"),
        block_times_s=outcome.block_times_s().tolist(),
        interval_quantiles_s=np.quantile(outcome.intervals_s, [0.05, 0.25, 0.5, 0.75, 0.95]).tolist() if count > 1 else [],
        staleness=histogram(outcome.staleness),
        accounts=outcome.accounts,
        parameters=0 if vector is None else len(vector),
        curve=list(outcome.curve),
        fingerprint="" if vector is None else hashlib.sha256(vector.tobytes()).hexdigest()[:16],
        notes=list(outcome.notes),
        parameter_bytes=8 if vector is None else vector.itemsize,
        batch_times_s=[[float(f"{value:.6g}") for value in times] for times in outcome.batch_times_s],
        server_time_s=outcome.server_time_s,
    )


def histogram(staleness: dict[int, int]) -> Histogram:
    """Counts by staleness in at most 200 bins of equal width."""
    if not staleness:
        return Histogram(mean=float("nan"), width=1, counts=[])
    total = sum(staleness.values())
    width = max(staleness) // MOST_BINS + 1
    counts = [0] * (max(staleness) // width + 1)
    for age, number in staleness.items():
        counts[age // width] += number
    return Histogram(mean=sum(age * number for age, number in staleness.items()) / total, width=width, counts=counts)


class SynchronyStore(Store[SynchronyRecord]):
    """SynchronyRecords in `<root>/<"virtual" or machine>/`."""

    kind = SynchronyRecord
    foreign = frozenset({AVERAGING, DOWNPOUR})

    def __init__(self, root: Path = RECORDS) -> None:
        super().__init__(root)

    def place(self, record: SynchronyRecord) -> str:
        return record.place

    def find(self, experiment: Experiment, repeat: int = 0, machine: str | None = None) -> SynchronyRecord | None:
        """The latest attempt of this experiment (on this machine, unless another is named), or None."""
        machine = machine or this_machine().name
        return self.latest(_place(experiment, machine), record_key(experiment, repeat, machine))
