"""Time Runs: the sweep (`measure.sweep`) of the experiment that is a Run against the clock. Imports no framework."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from multigpu.hosts.launching import Company
from multigpu.hosts.spread import Spread
from multigpu.measure.bar import Bar
from multigpu.measure.point import Point
from multigpu.measure.summary import Summary
from multigpu.measure.sweep import sweep
from multigpu.measure.timed import TIMED
from multigpu.record import RecordStore


def measure(
    points: Sequence[Point],
    store: RecordStore,
    retry: Sequence[str] = (),
    progress: bool = True,
    hook: str | None = None,
    tensorboard: Path | None = None,
    company: Company | Spread | None = None,
    bar: Bar | None = None,
) -> Summary:
    """As `sweep`.

    tensorboard: a folder for TensorBoard's logs of what is measured, one folder a Run in it; TensorFlow in one process only.

    Raises:
        ValueError: as `sweep`, or a Run has no such logs.
        RuntimeError: as `sweep`.
    """
    environment = {}
    if tensorboard:
        for point in points:
            if (point.run.framework, point.run.processes) != ("tensorflow", "one"):
                raise ValueError(f"TensorBoard logs need framework=tensorflow and processes=one, which {point.run.label()} has not")
        try:
            tensorboard.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"TensorBoard's logs cannot be written to {tensorboard}: {error.strerror}; choose another folder") from None
        environment["MULTIGPU_TENSORBOARD"] = str(tensorboard.resolve())
    return sweep(TIMED, points, store, retry, progress, hook, environment, company, bar)
