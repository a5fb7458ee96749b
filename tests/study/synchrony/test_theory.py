"""Theory against the simulator: runtime inside its 95% band, staleness by an exact balance; laws'
order statistics against samples.
"""

import math

import numpy as np
import pytest
from scipy import stats

from multigpu.analysis.laws import Empirical
from multigpu_study.synchrony.laws import (
    ConstantTime,
    Exponential,
    Law,
    Pareto,
    ShiftedExponential,
    StepTimes,
)
from multigpu_study.synchrony.protocol import Coordinator
from multigpu_study.synchrony.simulate import simulate
from multigpu_study.synchrony.theory import mean_staleness, update_time_s
from tests.study.synchrony.cases import SIX, timed

SEEDS = 12
SHIFTED = ShiftedExponential(shift_s=1.0, scale_s=0.5)


def test_hand_worked_order_statistics() -> None:
    assert Exponential(scale_s=1.0).order_mean_s(8, 8) == pytest.approx(761 / 280)  # H_8
    assert Exponential(scale_s=2.0).order_mean_s(1, 4) == pytest.approx(0.5)
    assert SHIFTED.order_mean_s(2, 2) == pytest.approx(1 + 0.5 * 1.5)
    # all of 4 pairs
    assert Empirical(times_s=(1.0, 3.0)).order_mean_s(2, 2) == pytest.approx(0.25 * 1 + 0.75 * 3)
    # the minimum of P is Pareto with shape P * shape
    assert Pareto(minimum_s=1.0, shape=2.0).order_mean_s(1, 3) == pytest.approx(6 / 5)


@pytest.mark.parametrize(
    "law",
    [
        ConstantTime(time_s=0.3),
        Exponential(scale_s=2.0),
        SHIFTED,
        Pareto(minimum_s=0.5, shape=2.5),
        Empirical(times_s=(1.0, 4.0, 2.0, 2.0)),
    ],
    ids=lambda law: law.kind,
)
def test_samples_follow_the_law(law: Law) -> None:
    sample = law.sample(np.random.default_rng(1), 200_000).reshape(-1, 4)
    assert sample.min() > 0
    for k in (1, 2, 3):  # the largest Pareto of four has too wide a tail for a mean of samples
        kth = np.sort(sample, axis=1)[:, k - 1]
        assert abs(kth.mean() - law.order_mean_s(k, 4)) <= 4 * kth.std() / np.sqrt(len(kth)) + 1e-12


def test_a_workers_times_depend_on_seed_worker_and_ticket_alone() -> None:
    law = Exponential(scale_s=1.0)
    forward = StepTimes(law, 3, 1)
    times = [forward.time_s(ticket) for ticket in range(200)]
    backward = StepTimes(law, 3, 1)
    assert [backward.time_s(ticket) for ticket in reversed(range(200))] == times[::-1]
    assert len(set(times)) == 200
    assert StepTimes(law, 3, 2).time_s(0) != times[0] != StepTimes(law, 4, 1).time_s(0)
    assert StepTimes(law, 3, 1, slowdown=3.0).time_s(5) == 3 * times[5]


def means_s(
    protocol: str, gradients: int | None, workers: int, law: dict, updates: int
) -> np.ndarray:
    """Seconds per update, by seed."""
    runs = [
        simulate(timed(protocol, gradients, workers=workers, law=law, updates=updates, seed=seed))
        for seed in range(SEEDS)
    ]
    return np.array([run.update_times_s[-1] / updates for run in runs])


def test_theory_lies_in_the_simulators_band_for_exponential_times() -> None:
    law = Exponential(scale_s=1.0)
    points = [
        (protocol, k, workers)
        for workers in (2, 5, 12)
        for protocol, k in SIX
        if k is None or protocol.count("batch") or k <= workers
    ]
    inside = 0
    for protocol, k, workers in points:
        values = means_s(protocol, k, workers, law.model_dump(), 100)
        theory = update_time_s(protocol, workers, law, k)
        half = values.std(ddof=1) / math.sqrt(SEEDS)
        distance = abs(values.mean() - theory)
        inside += distance <= stats.t.ppf(0.975, SEEDS - 1) * half
        # 1 in 10,000: no protocol may be off for a reason
        assert distance <= stats.t.ppf(1 - 0.5e-4, SEEDS - 1) * half, (
            protocol,
            k,
            workers,
            values.mean(),
            theory,
        )
    # of n bands at 95%, this many hold the truth with 99.9%
    assert inside >= stats.binom.ppf(0.001, len(points), 0.95), f"{inside} of {len(points)}"


@pytest.mark.parametrize(
    ("protocol", "gradients", "expected_s"),
    # 5 workers, 0.5 s: by hand; k_async finds 5 // K full sets every 0.5 s, k_batch_sync needs two
    # rounds for 6
    [
        (*case, seconds)
        for case, seconds in zip(
            (*SIX, ("k_async", 2)), (0.5, 0.5, 1.0, 0.1, 0.5, 0.6, 0.25), strict=True
        )
    ],
)
def test_constant_times_give_theory_exactly(
    protocol: str, gradients: int | None, expected_s: float
) -> None:
    law = ConstantTime(time_s=0.5)
    assert update_time_s(protocol, 5, law, gradients) == pytest.approx(expected_s)
    # 150 updates are a whole number of rounds
    assert means_s(protocol, gradients, 5, law.model_dump(), 150) == pytest.approx(
        expected_s, rel=1e-9
    )


@pytest.mark.parametrize(
    "law", [SHIFTED, Pareto(minimum_s=1.0, shape=3.0)], ids=lambda law: law.kind
)
def test_what_is_known_for_other_laws_holds(law) -> None:
    for protocol, k in (
        ("sync", None),
        ("k_sync", 2),
        ("k_batch_async", 6),
        ("async", None),
        ("k_batch_sync", 1),
        ("k_async", 5),
    ):
        # the start, all workers at once, must wash out
        updates = 1000 if protocol == "async" else 200
        assert means_s(protocol, k, 5, law.model_dump(), updates).mean() == pytest.approx(
            update_time_s(protocol, 5, law, k), rel=0.03
        )
    assert update_time_s("k_batch_sync", 5, law, 3) is None
    assert update_time_s("k_async", 5, law, 3) is None


@pytest.mark.parametrize(("protocol", "gradients"), SIX)
@pytest.mark.parametrize("kind", ["exponential", "pareto"])
def test_staleness_balances_exactly(protocol: str, gradients: int | None, kind: str) -> None:
    """Every update ages each batch under way by 1: ages applied + ages still there = updates x
    batches under way.
    """
    law = {
        "exponential": {"kind": kind, "scale_s": 1.0},
        "pareto": {"kind": kind, "minimum_s": 1.0, "shape": 1.5},
    }[kind]
    run = simulate(timed(protocol, gradients, law=law, updates=3000))
    k = run.experiment.gradients_per_update
    applied = sum(age * count for age, count in run.staleness.items())
    server = Coordinator(protocol, 5, gradients)
    server.begin()
    for event in run.events:
        server.arrived(event.worker, event.ticket)
    still_there = sum(server.version - job.version for job in server.running.values())
    mean = mean_staleness(protocol, 5, k)
    assert sum(run.staleness.values()) == 3000 * k == run.accounts.applied
    assert applied + still_there == round(3000 * k * mean)
    assert applied / (3000 * k) == pytest.approx(mean, rel=0.02, abs=1e-12)
    assert set(run.staleness) == {0} or protocol in ("async", "k_async", "k_batch_async")
