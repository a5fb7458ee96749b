"""Parts of the study that no file can say: averages and Downpour SGD, which are no Experiments, and large batches, whose updates and rates
follow from a data set's rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from multigpu.synchrony.averaging_record import AveragingExperiment
from multigpu.synchrony.downpour import Downpour
from multigpu.synchrony.experiment import Outage, build_experiment
from multigpu.synchrony.laws import Exponential, ShiftedExponential
from multigpu.synchrony.planned import Planned
from multigpu.synchrony.problems import Digits, LinearRegression, PlantedTeacher, ProblemDescription
from multigpu.synchrony.rates import ConstantRate, RateRule, WarmUpRate

EXPONENTIAL = Exponential(scale_s=1.0)

EPOCHS, WARM_UP_EPOCHS = 30, 5
SHARE = 32
"""Rows of one worker's gradient: k, as in document 002."""
LARGE: tuple[tuple[ProblemDescription, int, float, tuple[int, ...], int, float], ...] = (
    (Digits(hidden=(48,), batch_size=SHARE), 1437, 0.1, (1, 4, 8, 16, 32), 5, 0.5),
    (PlantedTeacher(features=192, rows=4096, teacher_hidden=8, batch_size=SHARE), 4096, 0.1, (1, 16, 32), 3, 1.2),
)
"""Problem, its rows, the rate of one worker's batch, numbers of workers n, seeds, seconds a run takes."""
LARGE_LAW = ShiftedExponential(shift_s=0.9, scale_s=0.1)
"""Times that spread little, as those of equal GPUs: a minibatch takes hardly longer with more of them."""

MEMORY_PROBLEM = LinearRegression(features=100, batch_size=8)
"""Of the part `memory`, by which its Records are told from others."""

REPLICAS = (1, 2, 4, 8, 16, 32)
DOWNPOUR_SEEDS = range(3)
DOWNPOUR_PROBLEM = Digits(hidden=(32,), batch_size=16)
TARGET_ERROR = 0.05
"""Test error to which time is compared."""


def large_batch() -> Iterator[Planned]:
    """Sync with n workers and the rate of one, n times that, and n times that after a warm-up; equally many epochs.

    With base batch B and its rate r, that is r k n / B: document 002's 0.1 k n / 256 with this problem's own r.
    """
    for problem, rows, base, several, seeds, cost_s in LARGE:
        for n in several:
            updates = round(EPOCHS * rows / (SHARE * n))
            rules: tuple[RateRule, ...] = (ConstantRate(rate=base),)
            if n > 1:
                warm = max(1, round(WARM_UP_EPOCHS * rows / (SHARE * n)))
                rules += (ConstantRate(rate=base * n), WarmUpRate(rate=base * n, start=base, updates=warm))
            for rule in rules:
                for seed in range(seeds):
                    fields: dict[str, Any] = {"problem": problem, "rate": rule, "updates": updates, "seed": seed}
                    experiment = build_experiment(protocol="sync", workers=n, law=LARGE_LAW, evaluations=15, **fields)
                    yield Planned("large_batch", experiment, cost_s)


def averaging() -> Iterator[Planned]:
    """Models trained apart on disjoint shards of digits, then averaged: a network and logistic regression, two kinds of start."""
    for hidden, cost_s in (((), 0.4), ((64,), 0.9)):
        for same_start in (False, True):
            for seed in range(5):
                problem = Digits(hidden=hidden, shards=4)
                yield Planned(
                    "averaging",
                    AveragingExperiment(problem=problem, workers=4, steps=500, rate=0.3, same_start=same_start, seed=seed),
                    cost_s,
                )


def downpour() -> Iterator[Planned]:
    """Downpour SGD: Adagrad in each shard or not, fetch and push every batch or every fifth, 1 to 32 replicas; and replicas that die."""
    cases: tuple[tuple[str, float, int], ...] = (("adagrad", 0.05, 1), ("adagrad", 0.05, 5), ("sgd", 0.1, 1))
    common: dict[str, Any] = {
        "shards": 4,
        "law": EXPONENTIAL,
        "latency": Exponential(scale_s=0.1),
        "problem": DOWNPOUR_PROBLEM,
        "evaluations": 100,
    }
    for rule, rate, every in cases:
        for replicas in REPLICAS:
            for seed in DOWNPOUR_SEEDS:
                fields: dict[str, Any] = {"rule": rule, "rate": rate, "fetch_every": every, "push_every": every, "seed": seed}
                experiment = Downpour(replicas=replicas, time_s=1600.0 / replicas, **fields, **common)
                yield Planned("downpour", experiment, 0.6)
    dies = tuple(Outage(worker=worker, at_s=20.0) for worker in (0, 1, 2, 3))
    returns = tuple(Outage(worker=worker, at_s=20.0, until_s=60.0) for worker in (0, 1, 2, 3))
    for outages in ((), dies, returns):
        for seed in DOWNPOUR_SEEDS:
            experiment = Downpour(replicas=8, rule="adagrad", rate=0.05, outages=outages, time_s=100.0, seed=seed, **common)
            yield Planned("downpour", experiment, 0.4)
