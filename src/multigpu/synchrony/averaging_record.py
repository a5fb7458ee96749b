"""AveragingRecord: what averaging models that were trained apart gave; written once, atomically, and never edited."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from multigpu.kept import Kept, key_of, made_here
from multigpu.measure.machine import versions
from multigpu.store import Store
from multigpu.synchrony.averaging import Score, train_apart
from multigpu.synchrony.problems import ProblemDescription
from multigpu.synchrony.record import AVERAGING, RECORDS, SYNCHRONY_VERSION


class AveragingExperiment(BaseModel):
    """Models trained apart, one a worker and shard, for `steps` steps at `rate`; see `averaging.train_apart`.

    same_start: all models start from the same parameters, or each from its own.
    average_every: steps between two averages that replace all models; None: averaged at the end alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    problem: ProblemDescription
    workers: Annotated[int, Field(ge=1)]
    steps: Annotated[int, Field(ge=1)]
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    same_start: bool
    average_every: Annotated[int, Field(ge=1)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _disjoint(self) -> AveragingExperiment:
        if self.problem.shards != self.workers:
            raise ValueError(f"{self.workers} workers need as many shards to be disjoint, not {self.problem.shards}")
        return self

    @property
    def key(self) -> str:
        """The name of its result, which does not depend on the machine: what has a Record under it is not run again."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return key_of(AVERAGING, text, SYNCHRONY_VERSION)


class AveragingRecord(Kept):
    """One experiment's scores (see `averaging.Averaging`)."""

    experiment: AveragingExperiment
    synchrony_version: int = SYNCHRONY_VERSION
    initial: list[Score]
    apart: list[Score]
    averaged: Score
    joint: Score


def measure_averaging(experiment: AveragingExperiment) -> AveragingRecord:
    """Train, average and score; the same experiment gives the same bits."""
    e = experiment
    found = train_apart(e.problem, e.workers, e.steps, e.rate, same_start=e.same_start, average_every=e.average_every, seed=e.seed)
    scores: dict[str, Any] = asdict(found)
    return AveragingRecord(key=e.key, experiment=e, **made_here(versions()), **scores)


class AveragingStore(Store[AveragingRecord]):
    """AveragingRecords in `<root>/averaging/`, beside a SynchronyStore's."""

    kind = AveragingRecord
    only = AVERAGING

    def __init__(self, root: Path = RECORDS) -> None:
        super().__init__(root)

    def find(self, experiment: AveragingExperiment) -> AveragingRecord | None:
        """Its Record, or None."""
        return self.latest(AVERAGING, experiment.key)
