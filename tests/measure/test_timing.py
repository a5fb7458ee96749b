"""The clock cannot be fooled."""

import math
from collections.abc import Callable

import pytest

from multigpu.measure.timing import Window, clock_flags, run_window, training_fault


class FakeDevice:
    """A device that works off a queue: steps return at once, `synchronise` waits for the rest, on a clock of its own."""

    now = busy_until = 0.0

    def enqueue(self, device_s: float, host_s: float = 0.0) -> None:
        self.now += host_s
        self.busy_until = max(self.busy_until, self.now) + device_s

    def mark(self) -> float:
        return max(self.busy_until, self.now)

    def seconds_between(self, first: float, last: float) -> float:
        return last - first

    def synchronise(self) -> None:
        self.now = max(self.now, self.busy_until)

    def timed(self, step: Callable[[int], object], first: int, count: int, barrier: Callable[[], None] = lambda: None) -> Window:
        return run_window(step, first, count, self, barrier, lambda: self.now)


def test_asynchronous_work_is_waited_for_and_work_queued_before_is_not_counted() -> None:
    """Steps return after 1 ms of host time while the device needs 10 ms each: 30 steps cost 0.3 s, not 0.03."""
    device, seen = FakeDevice(), []
    device.enqueue(5.0)
    window = device.timed(lambda index: (seen.append(index), device.enqueue(0.010, host_s=0.001))[0], 10, 30)
    assert window.wall_s == pytest.approx(0.301)  # the first step's device work begins when its host work has ended
    assert [window.event_s, sum(window.step_time_s)] == pytest.approx([window.wall_s] * 2)
    assert window.step_time_s[1:] == pytest.approx([0.010] * 29)
    assert seen == list(range(10, 40)) and len(window.results) == 30, "the window holds every step once"


def test_a_sleeping_rank_counts_for_all() -> None:
    """The closing barrier waits for the slowest replica, so the fast one's wall clock shows it too."""
    device, barriers = FakeDevice(), iter([0.0, 0.5])

    def barrier() -> None:
        device.now += next(barriers)

    window = device.timed(lambda index: device.enqueue(0.010), 0, 10, barrier)
    assert window.wall_s == pytest.approx(0.600)
    assert clock_flags(window.wall_s, [window.event_s, 0.599]) == []
    assert clock_flags(window.wall_s, [window.event_s, 0.100]) == ["clocks disagree by 83.3%"]


@pytest.mark.parametrize(
    ("losses", "moved", "agree", "words"),
    [
        ([3.0, 2.0, math.nan], {"w": 1.0}, True, "loss of step 2 is nan"),
        ([3.0, 2.0, 1.0], {"w": 1.0, "frozen": 0.0}, True, "'frozen'"),
        ([3.0, 2.0, 1.0], {"w": math.inf}, None, "'w'"),
        ([3.0, 3.0, 2.9, 2.9, 2.8, 2.8], {"w": 1.0}, None, "3 of 6 steps left the loss"),
        ([3.0, 2.0, 1.0], {"w": 1.0}, False, "different ones"),
        ([3.0, 2.5, 2.6, 2.1], {"w": 1e-9}, True, None),
        ([3.0, 2.5, 2.6, 2.1], {"w": 0.1}, None, None),
        # a batch that was learned by heart may stay so, in fp32 too, where its loss ends above zero
        ([3.0, 0.1, 1e-12, *[0.0] * 20], {"w": 0.1}, None, None),
        ([3.0, 0.1, *[1.1920929e-07] * 200], {"w": 0.1}, None, None),
        ([3.0, 0.1, *[1e-5] * 20], {"w": 0.1}, None, "exactly as it was"),
    ],
)
def test_what_does_not_train_is_a_fault_and_training_is_none(losses, moved, agree, words) -> None:
    found = training_fault(losses, moved, agree)
    assert words in found if words else found is None
