"""Which of a Run's steps are traced: soon after the timed ones, or a window that begins at a step of its choosing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from multigpu.run import Run


def before_window(run: Run, first: int) -> int:
    """The step that warms the profiler up, just before the first traced one; `first` unless the Run chooses its window."""
    return first if run.traced_from is None else max(first, run.traced_from - 1)


def advance(run: Run, step: Callable[[int], Any], first: int) -> int:
    """Train on, neither timed nor traced, from step `first` to the one before the Run's window, and say which that is."""
    last = before_window(run, first)
    for index in range(first, last):
        step(index)
    return last


def most_steps(run: Run) -> int:
    """Steps that the Run takes at most, traced ones and those before their window among them."""
    return before_window(run, run.warmup_steps + run.timed_steps) + (run.traced_steps + 1 if run.traced_steps else 1)
