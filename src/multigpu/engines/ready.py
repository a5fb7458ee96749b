"""How long a step takes on batches that lie on the device already. Imports no framework."""

import math
from collections.abc import Callable
from statistics import fmean
from typing import Any

from multigpu.engines.common.timing import run_window
from multigpu.spec.run import Run
from multigpu.workloads import description_of

LEAST_SHARE = 0.02
"""Of a step: what takes less of it, to wait for a batch and to make one, is not measured apart."""

KEPT = 4
"""Batches that are kept and repeated: steps of ragged ones take unequal times."""

WINDOW_SHARE, MOST = 0.5, 20
"""Of a window's time, for which short steps are repeated, and how often at most."""


def most_ready_steps(run: Run) -> int:
    """Steps that the Run takes at most on batches that are ready."""
    return KEPT + MOST * run.timed_steps if run.inputs == "own" else 0


def ready_step_s(
    session: Any,
    first: int,
    step_s: float,
    barrier: Callable[[], None],
    agreed: Callable[[float], float] = float,
) -> float | None:
    """Measure a step of a user's model on batches that are on the device already, in seconds; None
    where input takes next to nothing of it, or the batches are not a user's.

    A thread makes each batch a step ahead, so what a step waits for one says little: on CPUs the
    thread takes the step's cores meanwhile, and a GPU computes while its host waits. The same steps
    are timed again with the thread at rest, by the same processes, right after those as given.

    Args:
        first: the next step. step_s: of the timed steps. agreed: the largest of all processes'
            numbers, since either all measure or none.
    """
    run = session.run
    if run.inputs != "own":
        return None
    joined = run.devices if run.processes == "one" else 1
    making_s = description_of(run).config.described.batch_s * joined
    waits_s = [fmean(list(waits)[run.warmup_steps :]) for waits in session.waits(first) if waits]
    if agreed(max([making_s, *waits_s])) < LEAST_SHARE * agreed(step_s):
        return None
    kept = [session.shards(first + index) for index in range(min(KEPT, run.timed_steps))]
    session.settle()

    def step(index: int) -> Any:
        return session.trainer.step(kept[index % len(kept)])

    first_s = agreed(run_window(step, 0, len(kept), session.devices, barrier).wall_s) / len(kept)
    wanted = math.ceil(WINDOW_SHARE * run.timed_steps * agreed(step_s) / first_s)
    count = max(run.timed_steps, min(wanted, MOST * run.timed_steps))
    window = run_window(step, 0, count, session.devices, barrier)
    return float(window.wall_s / count)
