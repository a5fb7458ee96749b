"""Intervals of ratios against scipy and by simulation; every formula on numbers worked out by
hand.
"""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from multigpu.analysis import formulas as f
from multigpu.analysis.statistics import combined, half_width, log_samples, mean_interval
from tests.refusals import refused

VALUES = st.lists(st.floats(0.5, 2.0), min_size=2, max_size=8).filter(
    lambda values: np.ptp(values) > 1e-3
)


def sample(values, launches=None):
    """log_mean, log_variance and log_freedom of one group; each value a launch of its own unless
    told.
    """
    return log_samples(
        pd.Series(values),
        pd.Series(0, range(len(values))),
        pd.Series([*(launches or range(len(values)))]),
    ).assign(rate=1.0)


def interval(*samples):
    """Half the width of the interval of a difference of means, of equal rows."""
    return half_width(*combined(samples)[["log_variance", "log_freedom"]].to_numpy().T)


@settings(deadline=None)
@given(a=VALUES, b=VALUES, unit=st.floats(1e-3, 1e3))
def test_one_mean_has_students_interval_and_two_have_welchs_in_any_unit(a, b, unit):
    """Against scipy, where each value is a launch of its own."""
    logs = np.log(a)
    one = sample(a)
    other = sample(b)
    scaled = sample([unit * value for value in a])
    assert one.iloc[0].tolist() == pytest.approx(
        [logs.mean(), logs.var(ddof=1) / len(a), len(a) - 1, 1]
    )
    alone = stats.ttest_1samp(logs, 0).confidence_interval()
    assert [*interval(one), *interval(scaled)] == pytest.approx([(alone.high - alone.low) / 2] * 2)
    welch = stats.ttest_ind(logs, np.log(b), equal_var=False).confidence_interval()
    half = interval(one, other)[0]
    apart = (one["log_mean"] - other["log_mean"]).iloc[0]
    assert (apart - half, apart + half) == pytest.approx((welch.low, welch.high), abs=1e-9)
    assert (scaled["log_mean"] - one["log_mean"]).iloc[0] == pytest.approx(math.log(unit), abs=1e-9)
    mean = stats.ttest_1samp(a, 0).confidence_interval()
    assert mean_interval(a) == pytest.approx((mean.low, mean.high), abs=1e-9)


def test_launches_are_the_units_where_they_differ_and_one_value_has_no_interval():
    one, same = sample([5.0]), sample([3.0] * 5, "aaabb")
    assert one["log_freedom"].iloc[0] == 0 and all(
        math.isnan(end) for end in (*interval(one), *mean_interval([1.0]))
    )
    assert math.isnan(interval(one, sample([1.0, 1.1]))[0]) and interval(
        same, same
    ) == pytest.approx(0, abs=1e-12)
    values = [1.00, 1.001, 0.999, 1.2, 1.201]
    apart, alike = sample(values, "aaabb"), sample([1.00, 1.1, 0.9, 0.95, 1.04], "aaabb")
    assert [one["log_freedom"].iloc[0] for one in (apart, alike, same)] == [1, 4, 4] and interval(
        apart
    ) > 5 * interval(alike)
    assert sample(values[::-1], "bbaaa").to_numpy() == pytest.approx(apart.to_numpy())


@pytest.mark.parametrize("wander", [0.0, 1.0, 3.0])
def test_the_true_ratio_lies_inside_in_about_95_of_100(wander):
    """3 + 2 repeats a side; launches wander `wander` times as much as repeats."""
    random, times = np.random.default_rng(0), 400
    drift = random.normal(0, 0.01 * wander, (2 * times, 2))[:, [0, 0, 0, 1, 1]]
    logs = (random.normal(0, 0.01, drift.shape) + drift).ravel()
    sides = np.repeat(np.arange(2 * times), 5)
    found = log_samples(
        pd.Series(np.exp(logs)), pd.Series(sides), pd.Series([*"aaabb"] * 2 * times)
    ).assign(rate=1.0)
    own, base = (found[start::2].reset_index(drop=True) for start in (0, 1))
    inside = np.sum(np.abs(own["log_mean"] - base["log_mean"]) <= interval(own, base))
    assert inside / times >= 0.91


def test_jitter_and_step_memory_by_hand_and_throughput_needs_time():
    # median 3; deviations 2 1 0 1 97; their median 1
    assert f.jitter([1, 2, 3, 4, 100]) == pytest.approx(1.4826) and math.isnan(f.jitter([]))
    for wall_s in (0, math.nan):
        refused("needs a positive time", f.throughput, 1, wall_s)
    n = 200
    expected = (n + 2) / n * sum(n - k for k in range(1, 21)) / 20
    assert f.step_memory([(-1.0) ** i for i in range(n)]) == pytest.approx(expected)
    assert f.step_memory([3.0] * n) == 0 and f.step_memory([1.0] * 99) is None
    memory = [f.step_memory(row) for row in np.random.default_rng(0).normal(1, 0.1, (400, n))]
    assert np.mean(np.array(memory) > stats.chi2.ppf(0.95, 20) / 20) == pytest.approx(
        0.05, abs=0.03
    )


@pytest.mark.parametrize(("chance", "units"), [(0.245, True), (0.255, False)])
def test_a_chance_of_a_quarter_decides(chance, units):
    """Two boots of two launches of two repeats: F of 2 and 4."""
    apart = math.sqrt(stats.f.isf(chance, 2, 4) / 2)
    logs = [sign * apart + own for sign in (1, -1, 1, -1) for own in (1, -1)]
    found = log_samples(
        np.exp(pd.Series(logs)),
        pd.Series(0, range(8)),
        pd.Series([*"aabbccdd"]),
        pd.Series([*"xxxxyyyy"]),
    )
    assert found["log_freedom"].iloc[0] == (2 if units else 6)


def test_a_product_of_rates_over_others_has_all_their_variance():
    """Welch's of two, with Satterthwaite's freedom; each row by itself."""
    sides = [
        pd.DataFrame({"rate": rate, "log_variance": variance, "log_freedom": freedom})
        for rate, variance, freedom in (
            ([6.0, 5.0], [0.1, 0.4], [2.0, 4.0]),
            ([0.5, 3.0], [0.2, 0.0], [3.0, 1.0]),
            ([4.0, 2.0], [0.3, 0.4], [5.0, 4.0]),
        )
    ]
    found = combined(sides[:2], sides[2:])
    assert found["rate"].tolist() == pytest.approx([0.75, 7.5])
    assert found["log_variance"].tolist() == pytest.approx([0.6, 0.8])
    assert found["log_freedom"].tolist() == pytest.approx(
        [0.36 / (0.01 / 2 + 0.04 / 3 + 0.09 / 5), 8.0]
    )
