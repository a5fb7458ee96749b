"""Points, tiers and the three baselines, on planted Records."""

import math

import pytest

from multigpu.analysis.frame import frame_of
from multigpu.analysis.metrics import scaling_table, summary
from tests.factory import make_point, make_record

FIVE = [1.0, 1.01, 0.99, 1.0, 1.0]


def rates(factor):
    return [factor * x for x in FIVE]


def row_of(table, **fields):
    for name, value in fields.items():
        table = table[table[name] == value]
    assert len(table) == 1, table
    return table.iloc[0]


def test_repeats_pool_into_one_row():
    frame = frame_of(make_point([100.0, 100.0, 50.0], launches="aab", timed_steps=10))
    row = summary(frame).iloc[0]
    # equal units a repeat, times 1, 1 and 2: three units of work in four times
    assert row["rate"] == pytest.approx(75)
    assert (row["n"], row["launches"], row["tier"]) == (3, 2, "screening")
    assert row["spread"] == pytest.approx(50 / (250 / 3))
    assert row["step_time_s"] == pytest.approx(frame["wall_s"].sum() / 30)
    assert row["keys"].count(",") == 2


@pytest.mark.parametrize(
    ("count", "launches", "tier"), [(5, "aabba", "headline"), (5, "aaaaa", "screening"), (4, "aabb", "screening"), (1, "a", "screening")]
)
def test_tiers(count, launches, tier):
    row = summary(frame_of(make_point([1e6] * count, launches=launches))).iloc[0]
    assert row["tier"] == tier
    assert math.isnan(row["rate_low"]) == (count == 1)


def test_seeds_pool_and_other_fields_do_not():
    frame = frame_of([make_record(seed=0), make_record(seed=1, repeat=1), make_record(precision="fp32"), make_record(timing_version=2)])
    assert sorted(summary(frame)["n"]) == [1, 1, 2]


def test_a_point_without_a_measurement_says_why():
    row = summary(frame_of([make_record(status="out_of_memory", reason="150 GiB wanted")])).iloc[0]
    assert (row["n"], row["tier"], row["status"], row["reason"]) == (0, "missing", "out_of_memory", "150 GiB wanted")
    assert math.isnan(row["rate"])


def test_a_failure_before_the_input_was_made_joins_its_point():
    frame = frame_of([make_record(repeat=0), make_record(repeat=1, status="failed", input_label="")])
    assert len(summary(frame)) == 1


def test_three_baselines():
    records = (
        make_point(rates(100), devices=1, placement="exp2")
        + make_point(rates(400), devices=4, placement="exp2")
        + make_point(rates(200), devices=1, placement="ddp")
        + make_point(rates(500), devices=4, placement="independent")
    )
    row = row_of(scaling_table(frame_of(records)), placement="exp2", devices=4)
    assert row["speedup"] == pytest.approx(4)
    assert (row["efficiency"], row["overhead"]) == pytest.approx((1, 0))
    assert row["speedup_best"] == pytest.approx(2)
    assert (row["efficiency_best"], row["overhead_best"]) == pytest.approx((0.5, 1))
    assert row["best_single"] == "ddp, torch, eager"
    assert row["ceiling_ratio"] == pytest.approx(0.8)
    assert row["speedup_low"] < 4 < row["speedup_high"]
    assert row["efficiency_low"] == pytest.approx(row["speedup_low"] / 4)
    assert row["scaling"] == "weak"


def test_a_point_is_its_own_baseline_on_one_device():
    row = scaling_table(frame_of(make_point(rates(100), devices=1))).iloc[0]
    assert (row["speedup"], row["speedup_low"], row["speedup_high"]) == (1, 1, 1)


def test_an_unmeasured_baseline_leaves_nothing():
    row = scaling_table(frame_of(make_point(rates(100), devices=4))).iloc[0]
    assert all(math.isnan(row[name]) for name in ("speedup", "speedup_best", "ceiling_ratio", "overhead"))


@pytest.mark.parametrize("other", [{"batch_size": 64}, {"precision": "fp32"}, {"model": "nmt_small"}, {"timing_version": 2}])
def test_another_job_is_no_baseline(other):
    table = scaling_table(frame_of([*make_point(rates(100), devices=1, **other), *make_point(rates(300), devices=4)]))
    row = row_of(table, devices=4)
    assert math.isnan(row["speedup"]) and math.isnan(row["speedup_best"])


def test_one_device_serves_weak_and_strong_scaling():
    records = [*make_point(rates(100), devices=1), *make_point(rates(150), devices=2, scaling="strong")]
    row = row_of(scaling_table(frame_of(records)), devices=2)
    assert (row["scaling"], row["speedup"]) == ("strong", pytest.approx(1.5))


def test_series_stand_together_in_order_of_devices():
    records = [make_record(p, d) for p, d in [("ddp", 8), ("exp2", 2), ("ddp", 1), ("exp2", 1), ("ddp", 2)]]
    table = scaling_table(frame_of(records))
    assert list(zip(table["placement"], table["devices"], strict=True)) == [("ddp", 1), ("ddp", 2), ("ddp", 8), ("exp2", 1), ("exp2", 2)]


def test_no_record_makes_empty_tables_with_all_columns():
    empty, full = scaling_table(frame_of([])), scaling_table(frame_of([make_record()]))
    assert list(empty.columns) == list(full.columns) and len(empty) == 0
    assert list(summary(frame_of([]), by=["placement"]).columns) == list(summary(frame_of([make_record()]), by=["placement"]).columns)
