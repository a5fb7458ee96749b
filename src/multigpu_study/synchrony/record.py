"""Records of experiments: what one gave, with the machine it ran on; written once, atomically, and
never edited.
"""

import hashlib
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from multigpu.machine.machine import this_machine, versions
from multigpu.records.base import SCHEMA_VERSION, Kept, made_here
from multigpu.spec.schema import Data
from multigpu_study.synchrony.experiment import (
    SYNCHRONY_VERSION,
    ExperimentBase,
    ProtocolExperiment,
)
from multigpu_study.synchrony.server import Accounts, CurvePoint, Server

MOST_BINS = 200
Kind = TypeVar("Kind", bound=ExperimentBase)


class Measured(Kept, Generic[Kind]):
    """An experiment and its figures."""

    experiment: Kind
    synchrony_version: int = SYNCHRONY_VERSION

    @property
    def own_key(self) -> str:
        return self.experiment.key_on(self.machine.name, getattr(self, "repeat", 0))

    @property
    def place(self) -> str:
        return self.experiment.place_on(self.machine.name)


def record_fields(experiment: ExperimentBase) -> dict[str, Any]:
    """Of a Record that is made now."""
    return {
        "key": experiment.key_on(this_machine().name),
        "experiment": experiment,
        **made_here(versions()),
    }


class Histogram(Data):
    """counts[i] gradients have a staleness of i * width up to (i + 1) * width - 1, own update not
    counted; `mean` is exact.
    """

    mean: float
    width: int
    counts: list[int]


class ProtocolResult(Data):
    """The figures of one run, in seconds of the experiment's clock; accounts, curve, batch_times_s,
    server_time_s as in `server`.

    updates, gradients, samples: applied; measured_updates: as many as updates.
    update_time_s: mean seconds per update; block_times_s: the same in up to 20 successive parts;
        interval_quantiles_s: the 5, 25, 50, 75 and 95% quantiles of single intervals.
    parameters: their number, to turn vectors into bytes. fingerprint: of their bytes at the end.
    """

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
    curve: list[CurvePoint]
    fingerprint: str
    notes: list[str] = []
    parameter_bytes: int = 8
    batch_times_s: list[list[float]] = []
    server_time_s: float | None = None

    @property
    def diverged(self) -> bool:
        return bool(self.curve) and not np.isfinite(self.curve[-1].loss)


class SynchronyRecord(Measured[ProtocolExperiment]):
    """One experiment's result, or the reason why there is none."""

    schema_version: int = SCHEMA_VERSION
    repeat: int = 0
    status: Literal["ok", "failed"]
    reason: str = ""
    result: ProtocolResult | None = None


def make_record(
    experiment: ProtocolExperiment, run: Server | None, reason: str = ""
) -> SynchronyRecord:
    """The Record of a run that has ended; of none, with the `reason`, if it failed."""
    result = None if run is None else summarise(run)
    return SynchronyRecord(
        status="ok" if result else "failed",
        reason=reason,
        result=result,
        **record_fields(experiment),
    )


def summarise(run: Server) -> ProtocolResult:
    """A few kilobytes, whatever the number of updates and workers."""
    experiment, count, vector = run.experiment, len(run.update_times_s), run.parameters
    gradients = count * experiment.gradients_per_update
    quantiles_s = (
        np.quantile(np.diff(run.update_times_s), [0.05, 0.25, 0.5, 0.75, 0.95]).tolist()
        if count > 1
        else []
    )
    return ProtocolResult(
        end_s=run.end_s,
        updates=count,
        gradients=gradients,
        samples=gradients * experiment.problem.batch_size if experiment.problem else None,
        measured_updates=count,
        update_time_s=run.update_times_s[-1] / count if count else float("nan"),
        block_times_s=run.block_times_s().tolist(),
        interval_quantiles_s=quantiles_s,
        staleness=histogram(run.staleness),
        accounts=run.accounts,
        parameters=0 if vector is None else len(vector),
        curve=run.curve,
        fingerprint="" if vector is None else hashlib.sha256(vector.tobytes()).hexdigest()[:16],
        notes=run.notes,
        parameter_bytes=8 if vector is None else vector.itemsize,
        batch_times_s=[[float(f"{value:.6g}") for value in times] for times in run.batch_times_s],
        server_time_s=run.server_time_s,
    )


def histogram(staleness: dict[int, int]) -> Histogram:
    """Counts by staleness in at most `MOST_BINS` of equal width."""
    if not staleness:
        return Histogram(mean=float("nan"), width=1, counts=[])
    ages, numbers = np.array(list(staleness)), np.array(list(staleness.values()))
    width = int(ages.max()) // MOST_BINS + 1
    mean = int(ages @ numbers) / int(numbers.sum())
    return Histogram(
        mean=mean, width=width, counts=np.bincount(ages // width, numbers).astype(int).tolist()
    )
