"""Every formula on numbers worked out by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from multigpu.analysis import formulas as f


def test_throughput_is_units_over_time():
    assert f.throughput(300, 2) == 150


@pytest.mark.parametrize("wall_s", [0, -1, float("nan")])
def test_throughput_without_time_is_refused(wall_s):
    with pytest.raises(ValueError, match="needs a positive time"):
        f.throughput(1, wall_s)


def test_overhead_is_the_time_lost_against_perfect_scaling():
    # 8 devices at 0.75 need 1/6 of the time of one where 1/8 would be perfect: 8/6 - 1
    assert f.overhead(0.75) == pytest.approx(1 / 3)
    assert f.overhead(1.0) == 0 and math.isnan(f.overhead(0))


def test_jitter_is_the_scaled_median_deviation():
    # median 3; deviations 2 1 0 1 97; their median 1
    assert f.jitter([1, 2, 3, 4, 100]) == pytest.approx(1.4826)
    assert math.isnan(f.jitter([]))
    normal = np.random.default_rng(0).normal(0, 2.0, 20_000)
    assert f.jitter(normal) == pytest.approx(2.0, rel=0.03)


def test_step_memory_by_hand():
    """-1, 1, -1, ...: r_k = (-1)^k (n - k) / n, so Q / 20 = (n + 2) / 20 / n * sum of (n - k)."""
    n = 200
    expected = (n + 2) / n * sum(n - k for k in range(1, 21)) / 20
    assert f.step_memory([(-1.0) ** i for i in range(n)]) == pytest.approx(expected)
    assert f.step_memory([3.0] * n) == 0 and f.step_memory([1.0] * 99) is None


def test_step_memory_of_independent_steps_stays_below_its_bound():
    draws = np.random.default_rng(0).normal(1, 0.1, (400, 200))
    bound = stats.chi2.ppf(0.95, 20) / 20
    assert np.mean([f.step_memory(row) > bound for row in draws]) == pytest.approx(0.05, abs=0.03)
