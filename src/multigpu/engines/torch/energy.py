"""Energy that training takes: a window of steps between two readings of a GPU's own counter."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from multigpu.engines.errors import Unsupported
from multigpu.engines.torch.wire import barrier, largest
from multigpu.measure.machine import EnergyWindow, total_energy_j
from multigpu.measure.timing import run_window

if TYPE_CHECKING:
    from multigpu.engines.torch.session import Session

SPARE = 1.1
"""Steps beyond those that the last ones say fill the window: some may be faster."""


def measure_energy(
    session: Session,
    first: int,
    step_time_s: float,
    counter: Callable[[int], float | None] = total_energy_j,
    clock: Callable[[], float] = time.perf_counter,
) -> EnergyWindow:
    """Train from step `first` on for at least `energy_window_s` seconds of every replica's clock; all take the same number of steps.

    Where steps turn out faster than the timed ones, all train on until the shortest of the replicas' windows is long enough. Each knows
    that one, so that none trains on without the others.

    Args:
        step_time_s: of a timed step, the same value on every replica.
        counter: device -> joules so far, None where the device counts none.

    Raises:
        Unsupported: the GPU has no counter of energy.
    """
    wanted = session.run.energy_window_s
    assert wanted
    if counter(session.device.index) is None:
        raise Unsupported(f"GPU {session.device.index} has no counter of energy that NVML could read: leave energy_window_s out")
    session.device.synchronise()
    barrier()
    start_j, began = counter(session.device.index), clock()
    steps, left_s = 0, float(wanted)
    while left_s > 0:
        more = math.ceil(SPARE * left_s / step_time_s)
        run_window(session.step, first + steps, more, session.device, barrier)
        steps += more
        end_j, window_s = counter(session.device.index), clock() - began
        least_s = -largest(-window_s)
        left_s, step_time_s = wanted - least_s, least_s / steps
    assert start_j is not None and end_j is not None
    units = sum(batch.units for index in range(first, first + steps) for batch in session.batches[index])
    return EnergyWindow(window_s=window_s, start_j=start_j, end_j=end_j, steps=steps, units=units)
