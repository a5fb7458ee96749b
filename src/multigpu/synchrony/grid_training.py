"""Experiments that train, besides the curves of `grid`: translation, large batches, the server's memory, and Downpour SGD."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from multigpu.synchrony.downpour import Downpour
from multigpu.synchrony.experiment import Outage, build_experiment
from multigpu.synchrony.laws import Exponential, ShiftedExponential
from multigpu.synchrony.planned import Planned
from multigpu.synchrony.problems import Digits, LinearRegression, PlantedTeacher, ProblemDescription
from multigpu.synchrony.protocol import BATCHES, PROTOCOLS
from multigpu.synchrony.rates import ConstantRate, RateRule, WarmUpRate
from multigpu.synchrony.trained_models import TrainedModel

EXPONENTIAL = Exponential(scale_s=1.0)
CURVE_WORKERS = 8

NMT = TrainedModel(workload="nmt", model="nmt_small", batch_size=16, rows=1024, test_rows=256, longest=6)
NMT_RATE, NMT_TIME_S, NMT_K = 1.0, 24.0, 4

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

MEMORY_WORKERS = (2, 4, 8, 16, 32, 64)
MEMORY_PROBLEM = LinearRegression(features=100, batch_size=8)

REPLICAS = (1, 2, 4, 8, 16, 32)
DOWNPOUR_SEEDS = range(3)
DOWNPOUR_PROBLEM = Digits(hidden=(32,), batch_size=16)
TARGET_ERROR = 0.05
"""Test error to which time is compared."""


def translation() -> Iterator[Planned]:
    """Loss against virtual time of a small translation model on real sentences, for every protocol."""
    for protocol in PROTOCOLS:
        for seed in range(3):
            experiment = build_experiment(
                protocol=protocol,
                workers=CURVE_WORKERS,
                gradients=None if protocol in ("sync", "async") else NMT_K,
                law=EXPONENTIAL,
                problem=NMT,
                rate=ConstantRate(rate=NMT_RATE),
                time_s=NMT_TIME_S,
                evaluations=8,
                seed=seed,
            )
            yield Planned("translation", experiment, 1.3 if protocol == "sync" else 3.2)


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


def memory() -> Iterator[Planned]:
    """What the server holds and exchanges against P, for every protocol, K = P/2 where there is a K."""
    for protocol in PROTOCOLS:
        for workers in MEMORY_WORKERS:
            experiment = build_experiment(
                protocol=protocol,
                workers=workers,
                gradients=None if protocol in ("sync", "async") else workers // 2,
                law=EXPONENTIAL,
                problem=MEMORY_PROBLEM,
                rate=ConstantRate(rate=0.001),
                updates=max(20, 1200 // workers) if protocol not in ("async", *BATCHES) else 400,
                evaluations=1,
            )
            yield Planned("memory", experiment, 0.2)


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
