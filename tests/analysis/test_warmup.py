"""The end of warm-up in planted step times: found where it was planted, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from multigpu.analysis.frame import frame_of
from multigpu.analysis.startup import epoch_table, figure_warmup, host_clocked, warmup_finding, warmup_rows, warmup_table
from multigpu.analysis.warmup import change_point, warmup_frame
from tests.factory import make_record


def planted(slow: int, times: float, steps: int = 40, noise: float = 0.01, seed: int = 0) -> np.ndarray:
    """Step times of 20 ms with noise, the first `slow` ones longer by a factor."""
    found = 0.02 * np.exp(np.random.default_rng(seed).normal(0, noise, steps))
    found[:slow] *= times
    return found


@pytest.mark.parametrize(("slow", "times"), [(1, 30.0), (3, 1.3), (5, 1.1), (8, 2.0), (12, 1.06), (20, 1.2)])
def test_a_planted_change_is_found_with_its_seconds(slow: int, times: float) -> None:
    for seed in range(3):
        curve = planted(slow, times, seed=seed)
        change = change_point(curve)
        assert change.steps == slow and change.low <= slow <= change.high and change.p <= 0.05
        assert change.seconds == pytest.approx(curve[:slow].sum())
        assert change.slower == pytest.approx(times, rel=0.03)


def test_a_first_step_beyond_measure_does_not_hide_the_rest() -> None:
    curve = planted(4, 1.5)
    curve[0] = 10.0
    change = change_point(curve)
    assert change.steps == 4 and change.seconds == pytest.approx(10 + curve[1:4].sum())


def test_a_blurred_change_has_a_wider_interval() -> None:
    sharp, blurred = (change_point(planted(6, 1.1, noise=noise)) for noise in (0.005, 0.06))
    assert sharp.high - sharp.low == 0 < blurred.high - blurred.low and blurred.low <= 6 <= blurred.high


def test_intervals_hold_the_planted_step_as_often_as_they_say() -> None:
    found = [change_point(planted(6, 1.1, noise=0.06, seed=seed)) for seed in range(100)]
    known = [change for change in found if change.steps]
    assert len(known) > 80 and sum(change.low <= 6 <= change.high for change in known) / len(known) > 0.9


def test_times_that_are_steady_or_grow_have_no_warm_up() -> None:
    found = [change_point(planted(0, 1.0, seed=seed)).steps for seed in range(40)]
    assert sum(steps > 0 for steps in found) <= 5  # 5% of them by construction
    assert change_point(planted(20, 0.8)).steps == 0  # slower later: something else
    assert change_point([0.02] * 30).steps == 0


def test_what_cannot_be_told_is_refused() -> None:
    with pytest.raises(ValueError, match="7 steps are too few to see a change: at least 8 are needed"):
        change_point([1.0] * 7)
    with pytest.raises(ValueError, match=r"step times must be positive: one is 0\.0"):
        change_point([1.0] * 9 + [0.0])


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
    assert (row["steps"], row["first_step_s"]) == (12, slow[0]) and row["beyond"]  # 10 warm-up steps were left out
    assert found.loc[records[3].key, "steps"] == 3 and not found.loc[records[3].key, "beyond"]  # the factory's own first three

    rows = warmup_rows(frame_of(records[:1] + records[3:]), found.reset_index())
    assert "In 50% the end may lie beyond the warm-up that was left out (eager 1 Record)" in warmup_finding(rows)
    assert "ResNet-50 v1.5, PyTorch, captured" in warmup_table(rows).html.replace("\u00a0", " ")
    picture = figure_warmup(rows)
    assert set(picture.data["steps"]) == {3, 12} and "Warm-up takes" in picture.finding


def test_a_framework_whose_steps_the_host_marks_is_told_by_its_means() -> None:
    """Ten warm-up steps of 2, 3 and 9 timed ones each; a traced Run and one by the device's clock are not counted."""
    step, tensorflow = 2 * 64 / 256, {"framework": "tensorflow", "processes": "one", "execution": "graph", "workload": "cnn"}
    planted = [{"step_clock": "host", "warmup_s": 10 * times * step} for times in (2, 9, 3)]
    records = [make_record("exp4", units_per_s=256, warmup_steps=10, repeat=n, measurement=m, **tensorflow) for n, m in enumerate(planted)]
    records += [make_record("exp4", units_per_s=256, traced_steps=3, measurement=planted[1], **tensorflow), make_record(units_per_s=256)]
    said = host_clocked(records)
    assert said.startswith("TensorFlow has no row: its steps are marked by the host's clock")
    assert "the median ratio of the mean warm-up step to the mean timed one is 3.0 with images (3 Records)." in said
    assert "TensorFlow" not in warmup_table(warmup_rows(frame_of(records), warmup_frame(records))).html
    assert host_clocked(records[-1:]) == ""


def test_an_epoch_stands_beside_its_rate() -> None:
    records = [make_record(workload="cnn", units_per_s=4000, devices=2, repeat=n, launch_id=str(n)) for n in range(2)]
    another = make_record(workload="cnn", units_per_s=7000, devices=2, bucket_mib=100)  # which the row's name would not tell apart
    html = epoch_table(frame_of([*records, another])).html
    assert "7,000" not in html
    assert "320.3" in html and "ImageNet" in html  # 1,281,167 images at 4,000 a second
    assert "<details>" not in html
    often = [make_record(workload="cnn", units_per_s=5000, devices=1, repeat=n, launch_id=str(n % 2)) for n in range(5)]
    shown, folded = epoch_table(frame_of([*records, *often])).html.split("<details>")
    assert "256.2" in shown and "320.3" not in shown, "1,281,167 images at 5,000 a second were measured five times"
    assert "1 point measured too few times" in folded and "320.3" in folded


def test_first_steps_are_told_apart_from_the_start() -> None:
    """Ten warm-up steps of 0.5 s in 9 s: 4 s more than as many steady ones; 2.5 s of start and 1 s of building come before."""
    step = 2 * 64 / 256
    records = [make_record(workload="cnn", units_per_s=256, warmup_steps=10, measurement={"warmup_s": 4 + 10 * step})]
    unlinked = make_record(workload="cnn", units_per_s=999, peer_access="off")  # has the same name and another question
    html = epoch_table(frame_of([*records, unlinked])).html
    assert "of it first steps (s)" in html and ">4.0<" in html and ">7.5<" in html and "999" not in html
