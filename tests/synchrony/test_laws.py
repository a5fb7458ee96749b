"""Order statistics in closed form against hand-worked numbers and samples."""

import numpy as np
import pytest

from multigpu.synchrony.laws import Constant, Empirical, Exponential, Law, Pareto, ShiftedExponential, StepTimes

LAWS: tuple[Law, ...] = (
    Constant(time_s=0.3),
    Exponential(scale_s=2.0),
    ShiftedExponential(shift_s=1.0, scale_s=0.5),
    Pareto(minimum_s=0.5, shape=2.5),
    Empirical(times_s=(1.0, 4.0, 2.0, 2.0)),
)


def test_hand_worked_order_statistics() -> None:
    assert Exponential(scale_s=1.0).order_mean_s(8, 8) == pytest.approx(761 / 280)  # H_8
    assert Exponential(scale_s=2.0).order_mean_s(1, 4) == pytest.approx(0.5)
    assert ShiftedExponential(shift_s=1.0, scale_s=0.5).order_mean_s(2, 2) == pytest.approx(1 + 0.5 * 1.5)
    assert Empirical(times_s=(1.0, 3.0)).order_mean_s(2, 2) == pytest.approx(0.25 * 1 + 0.75 * 3)  # all of 4 pairs
    # the minimum of P is Pareto with shape P * shape
    assert Pareto(minimum_s=1.0, shape=2.0).order_mean_s(1, 3) == pytest.approx(6 / 5)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_order_statistics_add_up_to_the_mean(law: Law) -> None:
    assert sum(law.order_mean_s(k, 7) for k in range(1, 8)) == pytest.approx(7 * law.mean_s)
    assert 0 < law.order_mean_s(1024, 1024) < 100, "large P stays finite"


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
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


@pytest.mark.parametrize(
    "build", [lambda: Exponential(scale_s=0.0), lambda: Pareto(minimum_s=1.0, shape=1.0), lambda: Empirical(times_s=())]
)
def test_laws_without_a_mean_are_refused(build) -> None:
    with pytest.raises(ValueError):
        build()
