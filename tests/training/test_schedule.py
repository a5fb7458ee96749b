"""The rate of every step, by hand; and that what is adjusted to N devices is the same function of samples."""

from itertools import pairwise

import pytest

from multigpu.training.run import Schedule
from tests.training.cases import training


def test_luong10_over_ten_thousand_steps():
    """Constant for 5,000 steps, then halved at 5,000, 5,500 ... 9,500 (tensorflow/nmt: the first halving after 500 of them)."""
    schedule = Schedule("luong10", 1.0, length=10_000)
    assert [schedule.rate(step) for step in (0, 4_999, 5_000, 5_499)] == [1.0] * 4
    assert schedule.rate(5_500) == 0.5 and schedule.rate(9_500) == 2**-9 and schedule.rate(9_999) == 2**-9
    assert schedule.rate(10_000) == schedule.rate(10**6) == 2**-10


def test_warm_up_rises_in_equal_parts():
    schedule = Schedule("warmup", 0.8, 0.1, length=7)
    rates = [schedule.rate(step) for step in range(9)]
    assert rates[0] == 0.1 and rates[7:] == [0.8, 0.8]
    assert [b - a for a, b in pairwise(rates[:8])] == pytest.approx([0.1] * 7)


@pytest.mark.parametrize("law", ["luong10", "warmup"])
def test_adjusted_schedules_are_one_function_of_samples(law):
    """What one device does at step s, N devices under weak scaling do at step s / N."""
    more = {"schedule": law, "schedule_steps": 40, "warmup_epochs": 2, "scaling": "weak", "batch_size": 50, "epochs": 3, "steps": None}
    one = training(devices=1, **more).schedule_of(30)
    for devices in (2, 3, 6):
        run = training(devices=devices, **more)
        many = run.schedule_of(30 // devices)
        assert [many.rate(step) for step in range(30 // devices)] == pytest.approx(
            [one.rate(devices * step) for step in range(30 // devices)]
        )
        unaware = training(devices=devices, adjust_to_devices=False, **more).schedule_of(30 // devices)
        assert [unaware.rate(step) for step in range(10)] == pytest.approx([one.rate(step) for step in range(10)])


def test_strong_scaling_needs_no_adjusting():
    """The joined batch, and so the samples of a step, are the same for every number of devices."""
    runs = [training(devices=devices, schedule="luong10", schedule_steps=20) for devices in (1, 2)]
    assert [run.schedule_of(15).rate(12) for run in runs] == [runs[0].schedule_of(15).rate(12)] * 2


def test_scaled_rate_of_a_run():
    run = training(batch_size=64, devices=2, scaling="weak", base_rate=0.02, rate_scaling="linear", reference_batch=16, schedule="warmup")
    schedule = run.schedule_of(12)
    assert schedule.rate(0) == 0.02 and schedule.rate(5 * 12) == pytest.approx(0.16) and schedule.rate(5 * 12 - 1) < 0.16
