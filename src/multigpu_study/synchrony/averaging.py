"""Models trained apart on disjoint shards, and the average of their parameters (002: it "does not
generalise").
"""

from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field, model_validator

from multigpu_study.synchrony.experiment import ExperimentBase, ProblemDescription
from multigpu_study.synchrony.problems import Count
from multigpu_study.synchrony.record import Measured


class AveragingExperiment(ExperimentBase):
    """Models trained apart by SGD, one a worker, each on its shard, for `steps` steps at `rate`;
    and one trained jointly.
    same_start: all models start from the joint one's parameters, or each from its own.
        average_every: none; Records have it.
    """

    folder = "averaging"

    problem: ProblemDescription
    workers: Count
    steps: Count
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    same_start: bool
    average_every: None = None
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _disjoint(self) -> Self:
        if self.problem.shards != self.workers:
            raise ValueError(
                f"{self.workers} workers need as many shards to be disjoint, not"
                f" {self.problem.shards}"
            )
        return self

    @property
    def label(self) -> str:
        return f"averaging P={self.workers} {self.problem.kind} seed {self.seed}"


@dataclass(frozen=True)
class Score:
    """Mean loss over training rows, and share of test rows wrong (None without classes)."""

    loss: float
    error: float | None


class AveragingRecord(Measured[AveragingExperiment]):
    """Scores after equally many steps of every worker.

    initial: before training, by worker; apart: by worker; averaged: of the mean of their
        parameters; joint: of one model that took the mean of all workers' gradients in every step
        (sync), and so as many steps on as many samples.
    """

    initial: list[Score]
    apart: list[Score]
    averaged: Score
    joint: Score
