"""The end of warm-up in planted step times: found where it was planted, and nowhere else."""

import numpy as np
import pytest

from multigpu.analysis.warmup import change_point, warmup_frame
from tests.factory import make_record
from tests.refusals import refused


def planted(slow: int, times: float, steps: int = 40, noise: float = 0.01, seed: int = 0) -> np.ndarray:
    """Step times of 20 ms with noise, the first `slow` ones longer by a factor."""
    found = 0.02 * np.exp(np.random.default_rng(seed).normal(0, noise, steps))
    found[:slow] *= times
    return found


@pytest.mark.parametrize(("slow", "times"), [(1, 30.0), (3, 1.3), (5, 1.1), (8, 2.0), (12, 1.06), (20, 1.2)])
def test_a_planted_change_is_found(slow: int, times: float) -> None:
    assert [change_point(planted(slow, times, seed=seed)) for seed in range(3)] == [slow] * 3


def test_a_first_step_beyond_measure_does_not_hide_the_rest() -> None:
    curve = planted(4, 1.5)
    curve[0] = 10.0
    assert change_point(curve) == 4


def test_times_that_are_steady_or_grow_have_no_warm_up() -> None:
    found = [change_point(planted(0, 1.0, seed=seed)) for seed in range(40)]
    assert sum(steps > 0 for steps in found) <= 5  # 5% of them by construction
    assert change_point(planted(20, 0.8)) == 0  # slower later: something else
    assert change_point([0.02] * 30) == 0


def test_what_cannot_be_told_is_refused() -> None:
    refused("7 steps are too few to see a change: at least 8 are needed", change_point, [1.0] * 7)
    refused(r"step times must be positive: one is 0\.0", change_point, [1.0] * 9 + [0.0])


def test_records_are_read_by_their_slowest_rank_and_host_clocks_are_left_out() -> None:
    slow, fast = list(planted(12, 1.2, seed=1)), list(planted(0, 1.0, seed=2) * 0.9)
    records = [
        make_record(measurement={"step_time_s": [fast, slow]}, seed=1),
        make_record(measurement={"step_clock": "host"}, seed=2),
        make_record(traced_steps=3, seed=3),
        make_record(workload="cnn", seed=4, execution="captured"),
    ]
    found = warmup_frame(records).set_index("key")
    assert set(found.index) == {records[0].key, records[3].key}
    row = found.loc[records[0].key]
    assert (row["steps"], row["first_step_s"]) == (12, slow[0])
    assert row["seconds"] == pytest.approx(np.maximum(slow, fast)[:12].sum())
    assert found.loc[records[3].key, "steps"] == 3  # the factory's own first three
