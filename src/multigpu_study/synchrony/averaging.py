"""Models trained apart on disjoint shards, and the average of their parameters (002: it "does not
generalise").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator
from threadpoolctl import threadpool_limits

from multigpu_study.synchrony.experiment import ExperimentBase, ProblemDescription
from multigpu_study.synchrony.problems import Count, Problem
from multigpu_study.synchrony.record import Measured, record_fields


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


def measure_averaging(experiment: AveragingExperiment, problem: Problem) -> AveragingRecord:
    """Train, average and score; the same experiment gives the same bits."""
    e = experiment

    def score(parameters: np.ndarray) -> Score:
        return Score(problem.loss(parameters), problem.error(parameters))

    def average(vectors: Sequence[np.ndarray]) -> np.ndarray:
        return sum(vectors, np.zeros_like(vectors[0])) / len(vectors)

    joint = problem.initial(e.seed)
    # a seed of its own for each start; the joint model has the first
    models = [
        joint if e.same_start else problem.initial(e.seed + 1000 * worker)
        for worker in range(e.workers)
    ]
    initial = [score(model) for model in models]
    with threadpool_limits(1):
        for step in range(e.steps):
            models = [
                model - e.rate * problem.gradient(model, worker, step)
                for worker, model in enumerate(models)
            ]
            joint = joint - e.rate * average(
                [problem.gradient(joint, worker, step) for worker in range(e.workers)]
            )
    apart, averaged = [score(model) for model in models], score(average(models))
    return AveragingRecord(
        initial=initial, apart=apart, averaged=averaged, joint=score(joint), **record_fields(e)
    )
