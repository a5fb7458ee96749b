"""The replay of a run's recorded arrivals, without any clock."""

from collections.abc import Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from multigpu.synchrony.exchange import ON_HOST, Arithmetic
from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.problems import Problem
from multigpu.synchrony.server import LEFT, Event, Server


def replay(
    experiment: Experiment, events: Sequence[Event], problem: Problem | None = None, arithmetic: Arithmetic = ON_HOST
) -> np.ndarray | None:
    """Parameters after `events`, with every gradient computed again: those of the run that recorded them, to the last bit.

    `arithmetic` matters under a bounded rate alone, and then must be that of the run's `server_device`: `on_device` says what is equal.

    A batch that arrives on a version which its worker was not given is an error.
    """
    problem = problem or experiment.open()
    server = Server(experiment, problem, arithmetic)
    with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
        server.begin()
        for number, event in enumerate(events):
            if event.kind == LEFT:
                server.left(event.worker, 0.0)
            else:
                job = server.coordinator.running.get(event.worker)
                assert job == (event.worker, event.ticket, event.version), (number, event, job)
                gradient = None
                if problem is not None:
                    given = arithmetic.fetch(server.parameters_of(event.worker))
                    gradient = arithmetic.place(problem.gradient(given, event.worker, event.ticket))
                server.arrived(event.worker, event.ticket, gradient, 0.0)
    return None if server.parameters is None else arithmetic.fetch(server.parameters)
