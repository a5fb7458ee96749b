"""What the simulator expects of a real run on devices, from step times that were measured in another one."""

from __future__ import annotations

import math
from typing import NamedTuple

from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.laws import Empirical
from multigpu.synchrony.record import SynchronyRecord, summarise
from multigpu.synchrony.simulate import simulate

UPDATES = 1500
"""Simulated for a prediction at least."""
CYCLES = 50
"""Gradients of the latest worker that a prediction holds at least: the one under way at its end is left out of the mean staleness."""


class Prediction(NamedTuple):
    """Mean seconds an update, and mean staleness (own update not counted)."""

    update_time_s: float
    staleness: float


def measured_law(record: SynchronyRecord) -> Empirical:
    """The times of the batches of a real run, all its workers' together, without the delay injected.

    Raises:
        ValueError: the Record holds no such times.
    """
    times = tuple(time for worker in (record.result.batch_times_s if record.result else []) for time in worker)
    if not times:
        raise ValueError(f"Record {record.key} holds no batch times: only real runs measure them")
    return Empirical(times_s=times)


def predict(experiment: Experiment, measured: SynchronyRecord, *, server: bool = True) -> Prediction:
    """The simulator's runtime and staleness of a real run's protocol and delays, from the step times of the run `measured`.

    server: let the server take the time for each gradient that it took there; else none.

    Raises:
        ValueError: `measured` holds no batch times.
    """
    time_s = measured.result.server_time_s if server and measured.result else None
    law = measured_law(measured)
    latest = 1 + max(experiment.delays_s or (0.0,)) / law.mean_s
    twin = Experiment(
        protocol=experiment.protocol,
        workers=experiment.workers,
        gradients=experiment.gradients,
        law=law,
        delays_s=experiment.delays_s,
        server_s=time_s or 0.0,
        preemptive=False,
        updates=max(UPDATES, math.ceil(CYCLES * latest * experiment.workers)),
        seed=experiment.seed,
    )
    result = summarise(simulate(twin))
    return Prediction(result.update_time_s, result.staleness.mean)
