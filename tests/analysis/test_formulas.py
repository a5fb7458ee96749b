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


def test_pooled_rate_is_no_mean_of_rates():
    # 200 units in 5 s; the rates are 100 and 25, their mean 62.5
    assert f.pooled_rate([100, 100], [1, 4]) == 40
    assert math.isnan(f.pooled_rate([], []))


def test_speedup_efficiency_overhead_follow_from_each_other():
    speedup = f.speedup(600, 100)
    assert speedup == 6
    assert f.efficiency(speedup, 8) == 0.75
    # 8 devices at 0.75 need 1/6 of the time of one where 1/8 would be perfect: 8/6 - 1
    assert f.overhead(0.75) == pytest.approx(1 / 3)
    assert f.overhead(1.0) == 0
    assert math.isnan(f.speedup(1, 0)) and math.isnan(f.overhead(0))


def test_exposed_communication_is_a_difference_and_may_be_negative():
    assert f.exposed(0.030, 0.025) == pytest.approx(0.005)
    assert f.exposed(0.025, 0.030) == pytest.approx(-0.005)


def test_jitter_is_the_scaled_median_deviation():
    # median 3; deviations 2 1 0 1 97; their median 1
    assert f.jitter([1, 2, 3, 4, 100]) == pytest.approx(1.4826)
    assert math.isnan(f.jitter([]))
    normal = np.random.default_rng(0).normal(0, 2.0, 20_000)
    assert f.jitter(normal) == pytest.approx(2.0, rel=0.03)


def test_spread_is_range_over_mean():
    assert f.spread([9, 10, 11]) == pytest.approx(0.2)
    assert f.spread([7]) == 0


def test_interval_is_students():
    # mean 3, s = sqrt(2.5), n = 5: half width 2.776 * 1.5811 / 2.2361
    low, high = f.interval([1, 2, 3, 4, 5])
    assert (low, high) == pytest.approx((3 - 1.9633, 3 + 1.9633), abs=1e-3)
    assert f.interval([1, 2, 3, 4, 5], 0.5).high < high


def test_one_repeat_has_no_interval():
    assert not f.interval([1.0]).given
    assert not f.rate_interval([10], [1]).given
    assert not f.ratio_interval([10], [1], [10, 10], [1, 1]).given


def test_rate_interval_lies_around_the_pooled_rate_by_hand():
    # rates e^-1, 1, e: logs -1, 0, 1; s = 1, n = 3, t = 4.3027: h = 2.4841
    low, high = f.rate_interval([1, 1, 1], [math.e, 1, 1 / math.e])
    pooled = 3 / (math.e + 1 + 1 / math.e)
    assert (low, high) == pytest.approx((pooled * math.exp(-2.4841), pooled * math.exp(2.4841)), rel=1e-3)


def test_equal_repeats_give_an_interval_of_no_width():
    assert f.rate_interval([10, 10, 10], [2, 2, 2]) == (5, 5)
    assert f.ratio_interval([20] * 3, [1] * 3, [10] * 3, [1] * 3) == (2, 2)


def test_launches_that_disagree_widen_the_interval():
    units, wall = [100] * 6, [1.00, 1.01, 0.99, 1.30, 1.31, 1.29]
    together = f.rate_interval(units, wall)
    apart = f.rate_interval(units, wall, list("aaabbb"))
    assert apart.high - apart.low > 3 * (together.high - together.low)
    mixed = f.rate_interval(units, [1.00, 1.01, 0.99, 1.0, 1.01, 0.99], list("aaabbb"))
    assert mixed == f.rate_interval(units, [1.00, 1.01, 0.99, 1.0, 1.01, 0.99])


def test_ratio_interval_by_hand_contains_the_ratio_and_turns_into_its_reciprocal():
    many, one = ([1, 1, 1], [0.1, 0.11, 0.09]), ([1, 1, 1], [1.0, 1.02, 0.98])
    low, high = f.ratio_interval(*many, *one)
    assert low < 10 < high
    back = f.ratio_interval(*one, *many)
    assert (back.low, back.high) == pytest.approx((1 / high, 1 / low))
    logs = [-np.log(many[1]), -np.log(one[1])]
    result = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    assert math.log(high / low) == pytest.approx(result.high - result.low)


def test_launch_gap_compares_launches():
    assert f.launch_gap([10, 10, 10, 10], [1, 1, 2, 2], list("aabb")) == pytest.approx((10 - 5) / (40 / 6))
    assert math.isnan(f.launch_gap([10, 10], [1, 1], ["a", "a"]))


def test_students_t_covers_at_n_5_where_the_bootstrap_does_not():
    rng = np.random.default_rng(0)
    samples = 1 + 0.03 * rng.standard_normal((2000, 5))
    student = np.mean([f.interval(row).low <= 1 <= f.interval(row).high for row in samples])
    draws = samples[:, rng.integers(0, 5, (500, 5))].mean(axis=2)
    low, high = np.quantile(draws, [0.025, 0.975], axis=1)
    bootstrap = np.mean((low <= 1) & (high >= 1))
    assert student == pytest.approx(0.95, abs=0.015)
    assert bootstrap < 0.87
