"""DownpourRecord: what one run of Downpour SGD gave; written once, atomically, and never edited."""

from __future__ import annotations

import json
from pathlib import Path

from multigpu.kept import Kept, key_of, made_here
from multigpu.measure.machine import versions
from multigpu.store import Store
from multigpu.synchrony.curve import Point
from multigpu.synchrony.downpour import Downpour, DownpourOutcome, simulate_downpour
from multigpu.synchrony.problems import Problem
from multigpu.synchrony.record import DOWNPOUR, RECORDS, SYNCHRONY_VERSION, Histogram, histogram


def downpour_key(experiment: Downpour) -> str:
    """The name of its result, which does not depend on the machine: what has a Record under it is not run again."""
    text = json.dumps(experiment.model_dump(mode="json"), sort_keys=True)
    return key_of(DOWNPOUR, text, SYNCHRONY_VERSION)


class DownpourRecord(Kept):
    """One run's figures (see `downpour.DownpourOutcome`); times in seconds of the virtual clock.

    staleness: by shard, of the parts it applied, its own update not counted. spread: batches by the difference between the most and the
    least updated shard in the vector they were computed on.
    """

    experiment: Downpour
    synchrony_version: int = SYNCHRONY_VERSION
    curve: list[Point]
    batches: int
    applied: float
    travelling: float
    accrued: int
    lost: int
    shard_updates: list[int]
    staleness: list[Histogram]
    spread: Histogram
    end_s: float
    notes: list[str]


def measure_downpour(experiment: Downpour, problem: Problem | None = None) -> DownpourRecord:
    """Simulate `experiment` on its built `problem`; the same experiment gives the same bits."""
    return make_downpour_record(simulate_downpour(experiment, problem))


def make_downpour_record(outcome: DownpourOutcome) -> DownpourRecord:
    """The Record of an outcome."""
    return DownpourRecord(
        key=downpour_key(outcome.experiment),
        experiment=outcome.experiment,
        curve=list(outcome.curve),
        batches=outcome.batches,
        applied=outcome.applied,
        travelling=outcome.travelling,
        accrued=outcome.accrued,
        lost=outcome.lost,
        shard_updates=list(outcome.shard_updates),
        staleness=[histogram(counts) for counts in outcome.staleness],
        spread=histogram(outcome.spread),
        end_s=outcome.end_s,
        notes=list(outcome.notes),
        **made_here(versions()),
    )


class DownpourStore(Store[DownpourRecord]):
    """DownpourRecords in `<root>/downpour/`, beside a SynchronyStore's."""

    kind = DownpourRecord
    only = DOWNPOUR

    def __init__(self, root: Path = RECORDS) -> None:
        super().__init__(root)

    def find(self, experiment: Downpour) -> DownpourRecord | None:
        """Its Record, or None."""
        return self.latest(DOWNPOUR, downpour_key(experiment))
