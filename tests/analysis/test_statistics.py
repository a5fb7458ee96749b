"""Intervals of ratios: against hand arithmetic, against scipy, and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from multigpu.analysis.statistics import Sample, interval, log_samples, mean_interval, sample


def test_by_hand():
    two = sample([math.e, math.e**3], ["a", "b"])
    assert (two.n, two.freedom) == (2, 1)
    assert two.mean == pytest.approx(2)
    assert two.variance == pytest.approx(1)  # variance 2 of the logs, over n = 2
    assert interval([two]) == pytest.approx(12.7062047)


def test_the_interval_of_a_mean_is_students():
    # mean 3, s = sqrt(2.5), n = 5: half width 2.776 * 1.5811 / 2.2361
    assert mean_interval([1, 2, 3, 4, 5]) == pytest.approx((3 - 1.9633, 3 + 1.9633), abs=1e-3)
    assert all(math.isnan(end) for end in mean_interval([1.0]))


def test_one_value_has_no_interval():
    one = sample([5.0], ["a"])
    assert one.freedom == 0 and math.isnan(one.variance)
    assert math.isnan(interval([one, sample([1.0, 1.1], "ab")]))


def test_equal_values_have_an_interval_of_no_width():
    same = sample([3.0] * 5, "aaabb")
    assert same.variance == pytest.approx(0, abs=1e-30) and same.freedom == 4
    assert interval([same, same]) == pytest.approx(0, abs=1e-12)


def test_is_welch_where_launches_are_alike():
    a, b = [1.0, 1.1, 0.9, 1.05, 0.95], [2.0, 2.5, 1.7, 2.2, 1.9]
    parts = [sample(a, "abcde"), sample(b, "abcde")]
    welch = stats.ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval()
    estimate, half = parts[0].mean - parts[1].mean, interval(parts)
    assert (estimate - half, estimate + half) == pytest.approx((welch.low, welch.high))


def test_launches_are_the_units_where_they_differ():
    apart = sample([1.00, 1.001, 0.999, 1.2, 1.201], "aaabb")
    assert apart.freedom == 1
    alike = sample([1.00, 1.1, 0.9, 0.95, 1.04], "aaabb")
    assert alike.freedom == 4
    assert interval([apart]) > 5 * interval([alike])


def test_order_and_unit_do_not_matter():
    values, launches = [1.0, 1.2, 0.9, 1.5, 1.4], "ababb"
    first, second = sample(values, launches), sample([1000 * v for v in values[::-1]], launches[::-1])
    assert second.mean - first.mean == pytest.approx(math.log(1000))
    assert interval([second]) == pytest.approx(interval([first]))


@pytest.mark.parametrize("wander", [0.0, 1.0, 3.0])
def test_the_true_ratio_lies_inside_in_about_95_of_100(wander):
    """3 + 2 repeats a side; launches wander `wander` times as much as repeats."""
    random, times = np.random.default_rng(0), 400
    logs = []
    for _side in range(2 * times):
        drift = random.normal(0, 0.01 * wander, 2)[[0, 0, 0, 1, 1]]
        logs += list(random.normal(0, 0.01, 5) + drift)
    sides = np.repeat(np.arange(2 * times), 5)
    found = log_samples(pd.Series(np.exp(logs)), pd.Series(sides), pd.Series([*"aaabb"] * 2 * times))
    samples = [Sample(5, *numbers) for numbers in found.to_numpy()]
    inside = sum(abs(one.mean - other.mean) <= interval([one, other]) for one, other in zip(samples[::2], samples[1::2], strict=True))
    assert inside / times >= 0.91
