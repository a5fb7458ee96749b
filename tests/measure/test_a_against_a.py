"""The same Run measured as two: a difference between A and A must lie inside its own interval."""

from __future__ import annotations

import pytest

from multigpu.analysis.statistics import interval, sample
from multigpu.measure.point import Point
from multigpu.measure.sweep import measure
from multigpu.record import RecordStore
from multigpu.run import Run


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_against_a(tmp_path) -> None:
    """Ten repeats in shuffled order, even ones called A and odd ones called A again.

    The interval is that of 99.9%: this machine's other work may disturb one half, and one test run in a thousand may fail by chance.
    """
    run = Run(
        workload="cnn", model="resnet_tiny", placement="independent", device_type="cpu", batch_size=16, warmup_steps=3, timed_steps=20
    )
    store = RecordStore(tmp_path)
    assert measure([Point(run, repeat) for repeat in range(10)], store, progress=False).statuses == {"ok": 10}
    halves = []
    for half in (0, 1):
        found = [record.measurement for record in store if record.repeat % 2 == half]
        halves.append(sample([m.units / m.wall_s for m in found], range(len(found))))
    assert abs(halves[0].mean - halves[1].mean) < interval(halves, 0.999)
