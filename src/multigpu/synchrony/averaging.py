"""Models trained apart on disjoint shards, and the average of their parameters (002: it "does not generalise")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from multigpu.synchrony.problems import Problem, ProblemDescription


@dataclass(frozen=True)
class Score:
    """Mean loss over all training rows, and the share of test rows classified wrong (None without classes)."""

    loss: float
    error: float | None


@dataclass(frozen=True)
class Averaging:
    """Scores after equally many steps of every worker, all on the same rows.

    apart: by worker; averaged: of the mean of their parameters; joint: of one model that took the mean of all workers' gradients
    in every step (sync), and so as many steps on as many samples; initial: before training, by worker.
    """

    initial: tuple[Score, ...]
    apart: tuple[Score, ...]
    averaged: Score
    joint: Score


def train_apart(
    description: ProblemDescription,
    workers: int,
    steps: int,
    rate: float,
    *,
    same_start: bool,
    average_every: int | None = None,
    seed: int = 0,
) -> Averaging:
    """Train `workers` models apart by SGD, each on its shard, and one jointly.

    Args:
        description: with as many shards as workers, so that they share no row.
        same_start: all models start from the same parameters (those of the joint one), or each from its own.
        average_every: replace all models by their average after so many steps (local SGD; 1 is sync); None: only at the end.

    Raises:
        ValueError: the number of shards is not that of workers, or a number is below 1.
    """
    if description.shards != workers:
        raise ValueError(f"{workers} workers need as many shards to be disjoint, not {description.shards}")
    if min(steps, average_every or 1) < 1:
        raise ValueError(f"steps and average_every must be at least 1, not {steps} and {average_every}")
    problem: Problem = description.build()
    joint = problem.initial(seed)
    # a seed of its own for each start; the joint model has the first
    models = [joint if same_start else problem.initial(seed + 1000 * worker) for worker in range(workers)]
    initial = tuple(score(problem, model) for model in models)
    with threadpool_limits(1):
        for step in range(steps):
            models = [model - rate * problem.gradient(model, worker, step) for worker, model in enumerate(models)]
            joint = joint - rate * average([problem.gradient(joint, worker, step) for worker in range(workers)])
            if average_every and (step + 1) % average_every == 0:
                models = [average(models)] * workers
    apart = tuple(score(problem, model) for model in models)
    return Averaging(initial, apart, score(problem, average(models)), score(problem, joint))


def average(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Their mean, added up in order."""
    return sum(vectors, np.zeros_like(vectors[0])) / len(vectors)


def score(problem: Problem, parameters: np.ndarray) -> Score:
    """Loss and error of `parameters`."""
    return Score(problem.loss(parameters), problem.error(parameters))
