"""The clock of a Run, without a framework, and which steps after it are traced."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from multigpu.spec.run import Run

# the host's clock and the device's events may differ by this share of the window before a Record is
# flagged
DISAGREEMENT = 0.01


class TimedDevice(Protocol):
    """What the clock needs of a device. A mark is a point on the device's own time line."""

    def mark(self) -> Any: ...

    def seconds_between(self, first: Any, last: Any) -> float: ...

    def synchronise(self) -> None: ...


@dataclass(frozen=True)
class TimedWindow:
    """One stretch of steps on one replica.

    wall_s: host time from the barrier before the first step to the one after the device finished
        the last.
    event_s: by the device's marks, before the first step and after each. step_time_s: between them.
    results: what each step returned.
    """

    wall_s: float
    event_s: float
    step_time_s: list[float]
    results: list[Any]
    marks: list[Any]


def run_window(
    step: Callable[[int], Any],
    first: int,
    count: int,
    device: TimedDevice,
    barrier: Callable[[], None],
    clock: Callable[[], float] = time.perf_counter,
) -> TimedWindow:
    """Run steps `first` .. `first + count - 1` and time them.
    The device is drained and all replicas meet before the clock starts, and again before it stops,
    so that neither work queued earlier nor work still running, here or on a slower replica, escapes
    it. Between steps nothing is read back.
    """
    device.synchronise()
    barrier()
    start = clock()
    marks = [device.mark()]
    results = []
    for index in range(first, first + count):
        results.append(step(index))
        marks.append(device.mark())
    device.synchronise()
    barrier()
    wall_s = clock() - start
    steps = [device.seconds_between(a, b) for a, b in pairwise(marks)]
    return TimedWindow(wall_s, device.seconds_between(marks[0], marks[-1]), steps, results, marks)


def clock_flags(wall_s: float, event_time_s: Sequence[float]) -> list[str]:
    """Say where the slowest replica's events and the wall clock differ by more than 1%."""
    difference = abs(max(event_time_s) - wall_s) / wall_s
    return [f"clocks disagree by {100 * difference:.1f}%"] if difference > DISAGREEMENT else []


LEARNED = 1e-6
"""Below this share of the first loss a batch counts as learned by heart: cross-entropy in fp32 ends
at 1e-7, where probabilities are 1.
"""


def training_fault(
    losses: Sequence[float], moved: dict[str, float], replicas_agree: bool | None, left_out: int = 0
) -> str | None:
    """Why these steps were no training, or None. Training moves every variable, and no two
    consecutive steps on a moving model give the same loss to the last bit, as long as there is
    something to learn (`LEARNED`).

    losses: of every step, warm-up first, joined over replicas. moved: by variable, how far from its
        start.
    left_out: steps without update, because a gradient overflowed: they leave the loss as it was.
    """
    bad = [index for index, loss in enumerate(losses) if not abs(loss) < float("inf")]
    if bad:
        return f"the loss of step {bad[0]} is {losses[bad[0]]}"
    still = [name for name, distance in moved.items() if not 0 < distance < float("inf")]
    if still:
        return f"{len(still)} of {len(moved)} variables did not move, {still[0]!r} among them"
    # a small batch that is repeated can be learned to the last bit, after which there is nothing
    # left to change
    repeated = sum(a == b for a, b in pairwise(losses) if abs(a) > LEARNED * abs(losses[0]))
    if repeated > len(losses) // 10 + left_out:
        return f"{repeated} of {len(losses)} steps left the loss exactly as it was"
    if replicas_agree is False:
        return "replicas that must hold equal variables ended with different ones"
    return None


def before_window(run: Run, first: int) -> int:
    """The step before the first traced one, which warms the profiler up."""
    return first if run.traced_from is None else max(first, run.traced_from - 1)


def advance(run: Run, step: Callable[[int], Any], first: int) -> int:
    """Train on from step `first` to the one before the Run's window, and say which that is."""
    last = before_window(run, first)
    for index in range(first, last):
        step(index)
    return last


def most_steps(run: Run) -> int:
    """Steps that the Run takes at most, traced ones and those before their window among them."""
    return before_window(run, run.warmup_steps + run.timed_steps) + (
        run.traced_steps + 1 if run.traced_steps else 1
    )
