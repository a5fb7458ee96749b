"""How long fed steps waited, and where workers give out, on planted numbers."""

import math
from typing import Any

import pytest

from multigpu.analysis.feeding import knee, waited_s, with_waits
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points
from multigpu.record import Record
from tests.factory import make_record
from tests.refusals import refused

STEPS = {"warmup_steps": 4, "timed_steps": 10}


def fed(rate: float, wait_s: float = 0.0, **more: Any) -> Record:
    """A Record of ResNet-50 on one GPU at 64 images a step."""
    common: dict[str, Any] = {"workload": "cnn", "devices": 1, **STEPS, "inputs": "jpeg_folder", "input_workers": 4, "prefetch": 1}
    waits = {"input_wait_s": [[wait_s] * 14]} if "inputs" not in more else {}
    return make_record(units_per_s=rate, measurement=more.pop("measurement", waits), **(common | more))


@pytest.mark.parametrize(("ceiling", "bend"), [(750.0, 7.5), (300.0, 3.0)])
def test_a_planted_knee_is_found(ceiling: float, bend: float) -> None:
    workers = [16, 1, 2, 4, 8, 12]
    found = knee(workers, [min(100.0 * count, ceiling) for count in workers])
    assert found == pytest.approx((100.0, ceiling, bend), rel=1e-6)


def test_rates_that_still_rise_have_no_knee() -> None:
    found = knee([1, 2, 4], [98.0, 203.0, 397.0])
    assert found.per_worker == pytest.approx(99.5, rel=0.01) and math.isinf(found.ceiling) and math.isinf(found.workers)
    for workers, rates in (([1], [2.0]), ([1, 2], [1.0, 0.0])):
        refused("a knee needs at least two positive points", knee, workers, rates)


def test_a_wait_is_of_the_second_half_and_of_the_replica_that_waited_most() -> None:
    waits = [[0.0] * 9 + [0.044] * 5, [0.0] * 9 + [0.05] * 5]
    assert waited_s(fed(1000.0, measurement={"input_wait_s": waits})) == pytest.approx(0.05)
    assert waited_s(fed(1000.0, inputs="synthetic", input_workers=None, prefetch=0)) == 0.0
    assert math.isnan(waited_s(fed(1000.0, measurement={"input_wait_s": []})))


def test_points_have_the_mean_wait_of_their_records() -> None:
    records = [fed(1000.0, 0.01, repeat=0), fed(1000.0, 0.03, repeat=1), fed(900.0, input_workers=8, measurement={"input_wait_s": []})]
    table = with_waits(points(frame_of(records)), records).set_index("input_workers")["wait_s"]
    assert table[4] == pytest.approx(0.02) and math.isnan(table[8])
    assert with_waits(points(frame_of([])), []).empty
