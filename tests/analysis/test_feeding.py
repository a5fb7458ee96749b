"""Rates and waits of planted Records that were fed in different ways, and where workers give out."""

from __future__ import annotations

import math
from typing import Any

import pytest

from multigpu.analysis.feeding import feeding_findings, feeding_frame, feeding_points, feeding_table, knee
from multigpu.analysis.figure_feeding import figure_workers
from multigpu.analysis.frame import frame_of
from multigpu.analysis.ordinary import ordinary
from multigpu.record import Record
from tests.factory import make_record

STEPS = {"warmup_steps": 4, "timed_steps": 10}


def fed(rate: float, wait_s: float = 0.0, **more: Any) -> Record:
    """A Record of ResNet-50 on one GPU at 64 images a step."""
    common: dict[str, Any] = {"workload": "cnn", "devices": 1, **STEPS, "inputs": "jpeg_folder", "input_workers": 4, "prefetch": 1}
    waits = {"input_wait_s": [[wait_s] * 14]} if "inputs" not in more else {}
    return make_record(units_per_s=rate, measurement=more.pop("measurement", waits), **(common | more))


def synthetic(rate: float, **more: Any) -> Record:
    return fed(rate, inputs="synthetic", input_workers=None, prefetch=0, **more)


@pytest.mark.parametrize(("ceiling", "bend"), [(750.0, 7.5), (300.0, 3.0)])
def test_a_planted_knee_is_found(ceiling: float, bend: float) -> None:
    workers = [16, 1, 2, 4, 8, 12]
    found = knee(workers, [min(100.0 * count, ceiling) for count in workers])
    assert found == pytest.approx((100.0, ceiling, bend), rel=1e-6)


def test_rates_that_still_rise_have_no_knee() -> None:
    found = knee([1, 2, 4], [98.0, 203.0, 397.0])
    assert found.per_worker == pytest.approx(99.5, rel=0.01) and math.isinf(found.ceiling) and math.isinf(found.workers)
    for workers, rates in (([1], [2.0]), ([1, 2], [1.0, 0.0])):
        with pytest.raises(ValueError, match="a knee needs at least two positive points"):
            knee(workers, rates)


def test_rates_are_of_the_second_half_when_nothing_made_before_is_left() -> None:
    backlog = [0.5] * 4 + [0.02] * 5 + [0.064] * 5  # ready batches first, then as fast as workers are
    waits = [0.0] * 9 + [0.044] * 5
    record = fed(64 * 10 / 0.42, measurement={"step_time_s": [backlog], "input_wait_s": [waits]})
    row = feeding_frame([record]).iloc[0]
    assert row["sustained_per_s"] == pytest.approx(1000) and row["images_per_s"] == pytest.approx(640 / 0.42)
    assert (row["step_s"], row["wait_s"]) == pytest.approx((0.064, 0.044))


def test_ways_stand_beside_what_stays_on_the_device() -> None:
    records = [synthetic(1000.0), fed(700.0, 0.02), fed(990.0, input_workers=8), fed(500.0, execution="captured"), fed(1.0, device_ids="0")]
    points = feeding_points(feeding_frame(records))
    shares = {(row["execution"], row["inputs"], str(row["input_workers"])): row["share"] for _, row in points.iterrows()}
    assert shares["eager", "jpeg_folder", "4"] == pytest.approx(0.7) and shares["eager", "jpeg_folder", "8"] == pytest.approx(0.99)
    assert math.isnan(shares["captured", "jpeg_folder", "4"]) and len(points) == 4  # a pinned Run is another question
    (said,) = feeding_findings(points)
    assert "by 8 workers a device at best are as fast as synthetic images (measured once): 99% of their rate" in said
    assert "slower than synthetic" in feeding_findings(points[points["input_workers"] != 8])[0]
    assert "20.00" in feeding_table(points).html and "8" in feeding_table(points).html


def test_a_sweep_says_where_the_host_gives_out() -> None:
    records = [synthetic(1000.0)] + [fed(min(150.0 * count, 600.0), input_workers=count) for count in (1, 2, 4, 8)]
    points = feeding_points(feeding_frame(records))
    assert any("a worker makes 150 images/s; beyond 4.0 a device more of them bring nothing" in said for said in feeding_findings(points))
    picture = figure_workers(points)
    assert "a bend at 4.0 workers" in picture.alt and set(picture.data["input_workers"]) == {1, 2, 4, 8}
    assert set(picture.data["synthetic_per_s"].round()) == {1000.0}
    rising = feeding_points(feeding_frame([fed(150.0 * count, input_workers=count) for count in (1, 2, 4)]))
    assert any("rates still rise at 4 a device: the host does not give out before" in said for said in feeding_findings(rising))


def test_without_such_records_the_page_says_so() -> None:
    points = feeding_points(feeding_frame([synthetic(1000.0)]))
    assert "has not been measured" in feeding_findings(points)[0] and "--grid inputs" in feeding_table(points).html
    assert "--grid inputs" in figure_workers(points).alt
    assert feeding_points(feeding_frame([])).empty


def test_other_pages_leave_these_records_out() -> None:
    special: list[dict[str, Any]] = [{"device_ids": "1"}, {"energy_window_s": 10}, {"model": "family_d8_w64_s64_f0"}]
    records = [synthetic(1000.0), fed(900.0), *(make_record(workload="cnn", devices=1, **fields) for fields in special)]
    records.append(make_record(workload="cnn", peer_access="off"))
    frame = frame_of(records)
    assert list(ordinary(frame)["key"]) == [records[0].key] and len(frame) == len(records)
