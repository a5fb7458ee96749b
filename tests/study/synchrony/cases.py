"""Short experiments that several tests use, what is true of every run, and the replay of its
arrivals without any clock.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from multigpu_study.synchrony.experiment import ProtocolExperiment, TrainedModel
from multigpu_study.synchrony.problems import Problem
from multigpu_study.synchrony.server import LEFT, ON_HOST, Arithmetic, Event, Server

RESNET = TrainedModel(workload="cnn", model="resnet_tiny", batch_size=4, rows=16, test_rows=16)
EXPONENTIAL = {"kind": "exponential", "scale_s": 1.0}
REGRESSION = {"kind": "linear_regression", "features": 6, "rows": 200, "batch_size": 16}
RULES: tuple[dict[str, Any], ...] = (
    {"kind": "constant", "rate": 0.02},
    {"kind": "staleness", "rate": 0.05},
    {"kind": "staleness", "rate": 0.05, "per": "gradient"},
    {"kind": "bounded", "c": 0.001, "maximum": 0.05},
    {"kind": "warm_up", "rate": 0.05, "start": 0.01, "updates": 20},
)
SIX = (
    ("sync", None),
    ("k_sync", 3),
    ("k_batch_sync", 6),
    ("async", None),
    ("k_async", 3),
    ("k_batch_async", 6),
)
"""The protocols with a K for 5 workers; the batch variants with more gradients than workers."""


def timed(protocol: str, gradients: int | None = None, **fields: Any) -> ProtocolExperiment:
    """Without gradients: 5 workers, exponential times, 200 updates."""
    fields = {"workers": 5, "law": EXPONENTIAL, "updates": 200, **fields}
    return ProtocolExperiment(protocol=protocol, gradients=gradients, **fields)


def trained(protocol: str, gradients: int | None = None, **fields: Any) -> ProtocolExperiment:
    """The same with gradients, of linear regression."""
    return timed(
        protocol,
        gradients,
        **{"problem": REGRESSION, "rate": {"kind": "constant", "rate": 0.02}, **fields},
    )


def check_accounts(run: Server, updates: int) -> None:
    """Every batch that was started is in one account, and the gradients of so many updates were
    applied.
    """
    a = run.accounts
    assert a.started == a.applied + a.waiting + a.running + a.cancelled + a.lost
    assert (
        a.applied == updates * run.experiment.gradients_per_update
        and len(run.update_times_s) == updates
    )
    assert (a.cancelled > 0) == (run.experiment.protocol in ("k_sync", "k_batch_sync"))


def replay(
    experiment: ProtocolExperiment,
    events: Sequence[Event],
    problem: Problem | None = None,
    arithmetic: Arithmetic = ON_HOST,
) -> np.ndarray | None:
    """Parameters after `events`, with every gradient computed again: those of the run that recorded
    them, to the last bit. `arithmetic` matters under a bounded rate alone, and then must be that of
    the run's `server_device`: `on_device` says what is equal.
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
