"""The study's experiments by part, each with the seconds that it takes one core: about ten minutes for all.

Times are in units of the law's mean (1 s) except those of real runs and of the empirical law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from multigpu.synchrony.averaging_record import AveragingExperiment
from multigpu.synchrony.experiment import build_experiment
from multigpu.synchrony.grid_devices import devices_cpu, gpus, gpus_injected
from multigpu.synchrony.grid_training import downpour, large_batch, memory, translation
from multigpu.synchrony.laws import Constant, Empirical, Exponential, Law, Pareto, ShiftedExponential
from multigpu.synchrony.planned import Planned
from multigpu.synchrony.problems import Digits, LinearRegression, PlantedTeacher, ProblemDescription
from multigpu.synchrony.protocol import BATCHES, CANCELS, PROTOCOLS, ProtocolName
from multigpu.synchrony.rates import BoundedRate, ConstantRate, RateRule, StalenessRate
from multigpu.synchrony.theory import softsync_gradients, update_time_s

SEEDS = range(5)

EXPONENTIAL = Exponential(scale_s=1.0)
EMPIRICAL_KEY = "5011dd656cb84a651f96"
"""The Record whose steps are the empirical law: a translation model, eager, on one GPU, with its variables on the CPU (Exp2)."""
EMPIRICAL_TIMES_S = (
    *(0.054465, 0.0548002, 0.0549793, 0.0550144, 0.0550817, 0.0560426, 0.0561344, 0.0561666, 0.0561949, 0.0562244),
    *(0.056354, 0.0564251, 0.0564995, 0.0564996, 0.0565496, 0.056594, 0.0566429, 0.0568426, 0.056844, 0.057758),
    *(0.0601273, 0.0722627, 0.0752444, 0.0970495, 0.0995086, 0.1021832, 0.1033165, 0.1053027, 0.1399549, 0.2442341),
)
"""Its 30 timed steps in seconds, sorted."""

RUNTIME_WORKERS = (2, 4, 8, 16, 64, 256, 1024)
COMPARED_WORKERS = (8, 20, 64, 256)
"""Where sync is compared with async with several seeds; 002 gives its figures at 8 and 20."""
CURVE_WORKERS = 8
TWINS: tuple[ProtocolName, ...] = ("k_sync", "k_batch_sync", "k_async", "k_batch_async")
LEARNERS, LEARNER_BATCH, LEARNER_RATE = 30, 128, 0.5
"""002's setting; the rate is one at which sync converges."""

OTHER_LEARNERS = (4, 8, 16, 64, 256)
SOFTSYNCS = (6, 30, 2, 1)
"""Updates that an average worker's gradient waits for: K is LEARNERS over it."""

LINEAR = LinearRegression(batch_size=8)
DIGITS = Digits(batch_size=32)
TEACHER = PlantedTeacher(rows=2048, test_rows=512, hidden=(32,))
CURVES: tuple[tuple[ProblemDescription, float, float, tuple[int, ...], int, float], ...] = (
    (LINEAR, 0.1, 400.0, (2, 4), 40, 0.4),
    (DIGITS, 0.3, 300.0, (2, 4), 20, 0.6),
    (TEACHER, 0.05, 60.0, (4,), 10, 1.9),
)
"""Problem, constant rate, seconds, every K, evaluations, seconds a run takes."""

REAL_LAW = ShiftedExponential(shift_s=0.02, scale_s=0.01)
REAL_K: tuple[tuple[ProtocolName, int | None], ...] = (
    ("sync", None),
    ("k_sync", 1),
    ("k_batch_sync", 3),
    ("async", None),
    ("k_async", 2),
    ("k_batch_async", 3),
)

RAY_WORKERS = (2, 3, 4)
RAY_LAW = ShiftedExponential(shift_s=0.3, scale_s=0.2)
"""A mean of 0.5 s: long beside the milliseconds that a call of an actor takes."""
RAY_UPDATES, RAY_START_S = 40, 15.0
"""Updates of a run (async has P times as many), and seconds that Ray and its actors take to start and end."""


def laws() -> tuple[Law, ...]:
    """The five laws of a worker's time, the first four with a mean of 1 s."""
    return (
        Constant(time_s=1.0),
        EXPONENTIAL,
        ShiftedExponential(shift_s=0.5, scale_s=0.5),
        Pareto(minimum_s=0.6, shape=2.5),
        Empirical(times_s=EMPIRICAL_TIMES_S),
    )


def runtime() -> Iterator[Planned]:
    """Every protocol at K = P/2 under every law for P to 1,024; every K at P = 16; sync beside async with several seeds."""
    for law in laws():
        for workers in RUNTIME_WORKERS:
            for protocol in PROTOCOLS:
                yield _timed("runtime", protocol, workers, workers // 2, law, 20_000)
    for law in (EXPONENTIAL, laws()[2]):
        for protocol in PROTOCOLS:
            # K = 8 is above
            for k in (1, 4, 12, 16) if protocol not in ("sync", "async") else ():
                yield _timed("runtime", protocol, 16, k, law, 20_000)
    for workers in COMPARED_WORKERS:
        for protocol in ("sync", "async"):
            for seed in range(1, 1 + len(SEEDS)):
                yield _timed("runtime", protocol, workers, None, EXPONENTIAL, 40_000, seed)


def _timed(part: str, protocol: ProtocolName, workers: int, k: int | None, law: Law, work: int, seed: int = 0) -> Planned:
    """Without gradients; about `work` batches, of which an update takes K, or P where it cancels the others."""
    gradients = None if protocol in ("sync", "async") else k
    each = workers if protocol in CANCELS else gradients or 1
    if protocol in CANCELS and protocol in BATCHES:
        each = workers + (gradients or 1)
    updates = min(6000, max(40, work // each))
    # every worker draws a block of times, however few it uses
    experiment = build_experiment(protocol=protocol, workers=workers, gradients=gradients, law=law, updates=updates, seed=seed)
    return Planned(part, experiment, 0.03 + 1e-5 * updates * each + 1e-4 * workers)


def staleness() -> Iterator[Planned]:
    """n-softsync at 30 learners as 002 has it, and K-async beside it, under two laws; n-softsync at other numbers of learners (C28)."""
    for law in (EXPONENTIAL, laws()[3]):
        for n in (1, 2, 6, 30):
            k = softsync_gradients(LEARNERS, n)
            for seed in SEEDS:
                yield _timed("staleness", "k_batch_async", LEARNERS, k, law, 12_000, seed)
        for k in (1, 5, 15):
            yield _timed("staleness", "k_async", LEARNERS, k, law, 12_000)
    for workers in OTHER_LEARNERS:
        for k in (1, workers // 2):
            for seed in range(6, 6 + len(SEEDS)):  # `runtime` has some of these with the first seeds
                yield _timed("staleness", "k_batch_async", workers, k, EXPONENTIAL, 12_000, seed)


def curves() -> Iterator[Planned]:
    """Error against virtual time, for every protocol and several K, at one constant rate a problem."""
    for problem, rate, time_s, several, evaluations, cost_s in CURVES:
        for protocol in PROTOCOLS:
            for k in (None,) if protocol in ("sync", "async") else several:
                for seed in SEEDS:
                    experiment = build_experiment(
                        protocol=protocol,
                        workers=CURVE_WORKERS,
                        gradients=k,
                        law=EXPONENTIAL,
                        problem=problem,
                        rate=ConstantRate(rate=rate),
                        time_s=time_s,
                        evaluations=evaluations,
                        seed=seed,
                    )
                    yield Planned("curves", experiment, cost_s)


def twins() -> Iterator[Planned]:
    """The K-batch protocols beside their K twins: the time of an update, and the loss after equally many."""
    for k in (2, 4):
        for protocol in TWINS:
            for seed in range(1, 1 + len(SEEDS)):
                yield _timed("twins", protocol, CURVE_WORKERS, k, EXPONENTIAL, 40_000, seed)
    for law in (EXPONENTIAL, laws()[2]):
        for k in (2, 4):
            for protocol in TWINS:
                for seed in SEEDS:
                    experiment = build_experiment(
                        protocol=protocol,
                        workers=CURVE_WORKERS,
                        gradients=k,
                        law=law,
                        problem=DIGITS,
                        rate=ConstantRate(rate=0.3),
                        updates=400,
                        evaluations=10,
                        seed=seed,
                    )
                    yield Planned("twins", experiment, 0.25)


def rates() -> Iterator[Planned]:
    """002's setting: sync and n-softsync with the constant rate, divided by staleness, and bounded; equally many gradients."""
    problem = Digits(hidden=(64,), batch_size=LEARNER_BATCH)
    gradients = 3000
    rules: tuple[RateRule, ...] = (
        ConstantRate(rate=LEARNER_RATE),
        StalenessRate(rate=LEARNER_RATE),
        BoundedRate(c=0.01, maximum=LEARNER_RATE),
    )
    cases: list[tuple[ProtocolName, int | None, RateRule]] = [("sync", None, rules[0])]
    cases += [("k_batch_async", softsync_gradients(LEARNERS, n), rule) for n in SOFTSYNCS for rule in rules]
    for protocol, k, rule in cases:
        for seed in SEEDS:
            experiment = build_experiment(
                protocol=protocol,
                workers=LEARNERS,
                gradients=k,
                law=EXPONENTIAL,
                problem=problem,
                rate=rule,
                updates=gradients // (k or LEARNERS),
                evaluations=20,
                seed=seed,
            )
            yield Planned("rates", experiment, 2.0)


def speedup() -> Iterator[Planned]:
    """Asynchronous training with the rate divided by the staleness on 2 to 16 workers, beside one: as many gradients (C54)."""
    problem, gradients = Digits(hidden=(64,), batch_size=LEARNER_BATCH), 3000
    cases: list[tuple[ProtocolName, int | None, int, RateRule]] = [("sync", None, 1, ConstantRate(rate=LEARNER_RATE))]
    cases += [("k_batch_async", 1, workers, StalenessRate(rate=LEARNER_RATE)) for workers in (2, 4, 8, 16)]  # `rates` has 30
    for protocol, k, workers, rule in cases:
        for seed in SEEDS:
            fields: dict[str, Any] = {"protocol": protocol, "workers": workers, "gradients": k, "law": EXPONENTIAL, "seed": seed}
            yield Planned("speedup", build_experiment(**fields, problem=problem, rate=rule, updates=gradients, evaluations=20), 2.0)


def averaging() -> Iterator[Planned]:
    """Models trained apart on disjoint shards of digits, then averaged: a network and logistic regression, two kinds of start."""
    for hidden, cost_s in (((), 0.4), ((64,), 0.9)):
        for same_start in (False, True):
            for seed in SEEDS:
                problem = Digits(hidden=hidden, shards=4)
                yield Planned(
                    "averaging",
                    AveragingExperiment(problem=problem, workers=4, steps=500, rate=0.3, same_start=same_start, seed=seed),
                    cost_s,
                )


def real() -> Iterator[Planned]:
    """Two workers as processes for every protocol, and the same experiments on the virtual clock."""
    for protocol, k in REAL_K:
        for clock in ("real", "virtual"):
            fields: dict[str, Any] = {"protocol": protocol, "gradients": k, "workers": 2, "law": REAL_LAW, "clock": clock}
            experiment = build_experiment(**fields, problem=LinearRegression(), rate=ConstantRate(rate=0.02), updates=100, evaluations=10)
            yield Planned("real", experiment, 5.0 if clock == "real" else 0.1)


def ray() -> Iterator[Planned]:
    """sync, K-sync that leaves out the slowest, and async over Ray actors, and the same experiments on the virtual clock."""
    for workers in RAY_WORKERS:
        cases: tuple[tuple[ProtocolName, int | None, int], ...] = (
            ("k_sync", workers - 1, RAY_UPDATES),
            ("sync", None, RAY_UPDATES),
            ("async", None, RAY_UPDATES * workers),
        )
        for protocol, k, updates in cases:
            fields: dict[str, Any] = {"protocol": protocol, "gradients": k, "workers": workers, "law": RAY_LAW, "updates": updates}
            fields |= {"problem": LinearRegression(), "rate": ConstantRate(rate=0.02), "evaluations": 10}
            over_ray = build_experiment(**fields, clock="real", engine="ray")
            update_s = update_time_s(protocol, workers, RAY_LAW, k) or RAY_LAW.mean_s
            yield Planned("ray", over_ray, RAY_START_S + updates * update_s)
            yield Planned("ray", build_experiment(**fields), 0.1)


PARTS: dict[str, Callable[[], Iterator[Planned]]] = {
    "runtime": runtime,
    "staleness": staleness,
    "twins": twins,
    "averaging": averaging,
    "real": real,
    "rates": rates,
    "speedup": speedup,
    "curves": curves,
    "memory": memory,
    "large_batch": large_batch,
    "downpour": downpour,
    "translation": translation,
}
APART: dict[str, Callable[[], Iterator[Planned]]] = {
    "gpus": gpus,
    "gpus_injected": gpus_injected,
    "devices_cpu": devices_cpu,
    "ray": ray,
}
"""Real runs of a model on devices, and over Ray actors (an optional extra), which the study of one core leaves out."""
GRIDS = ("study", *PARTS, *APART)
"""Names of grids: the whole study, one part of it, or one of those apart."""


def find_grid(name: str) -> list[Planned]:
    """The experiments of a grid, in the order in which they are run.

    Raises:
        ValueError: no such grid.
    """
    if name not in GRIDS:
        raise ValueError(f"unknown grid {name!r}: choose one of {', '.join(GRIDS)}")
    known = PARTS | APART
    return [planned for part in (PARTS if name == "study" else (name,)) for planned in known[part]()]
