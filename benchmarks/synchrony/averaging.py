"""Train models apart on disjoint shards, and score the average of their parameters."""

from collections.abc import Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from multigpu_study.synchrony.averaging import AveragingExperiment, AveragingRecord, Score
from multigpu_study.synchrony.problems import Problem
from multigpu_study.synchrony.record import record_fields


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
