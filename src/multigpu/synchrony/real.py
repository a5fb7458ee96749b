"""Experiments for real: this process is the server, its workers are processes of this machine, with the law's times injected as delays."""

import time
from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from multigpu.measure.machine import gpu_count
from multigpu.synchrony.exchange import Vector, arithmetic_of, open_exchange
from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.problems import Problem
from multigpu.synchrony.protocol import CannotContinue, Decision
from multigpu.synchrony.server import Outcome, Server
from multigpu.synchrony.workers import Processes

MOST_WORKERS = 64
"""On one machine; the simulator goes further."""
STALL_S = 120.0
"""A run ends with a sentence if nothing arrives for so long."""


class Workers(Protocol):
    """The workers of a run on the real clock, whatever they are, as its server sees them."""

    def send(self, decision: Decision, parameters: Vector | None) -> Collection[int]:
        """Give out the jobs started, on these parameters, and end those cancelled; the workers found gone."""

    def receive(self, timeout_s: float) -> tuple[list[tuple[int, int]], list[int]]:
        """((worker, ticket) of gradients that arrived, workers found gone), after at most `timeout_s`."""

    def take(self, worker: int) -> Vector | None:
        """The gradient that this worker has answered with."""


def serve(server: Server, workers: Workers, stall_s: float) -> tuple[float, float]:
    """Drive the server on the clock until its budget is spent; the seconds that took, and those for which the server was busy.

    Raises:
        CannotContinue: too few workers are left, or nothing arrives for `stall_s`.
    """
    begun = heard = time.perf_counter()
    busy_s, limit_s = 0.0, server.experiment.time_s or float("inf")
    gone = {*workers.send(server.begin(), server.parameters)}
    while True:
        now_s = time.perf_counter() - begun
        for worker in gone:
            server.left(worker, now_s)
        if server.finished(now_s):
            return now_s, busy_s
        server.coordinator.check_possible()
        came, lost = workers.receive(min(stall_s, limit_s - now_s))
        gone, arrived = {*lost}, time.perf_counter()
        if came or gone:
            heard = arrived
        elif arrived - heard >= stall_s and not server.finished(arrived - begun):
            raise CannotContinue(f"no gradient arrived for {stall_s:g} s: {len(server.coordinator.running)} workers are silent")
        for worker, ticket in came:
            if server.finished(arrived - begun):
                break
            gradient = workers.take(worker) if server.problem else None
            decision = server.arrived(worker, ticket, gradient, time.perf_counter() - begun)
            gone |= {*workers.send(decision, server.parameters)}
        busy_s += time.perf_counter() - arrived


def run_real(experiment: Experiment, problem: Problem | None = None, *, stall_s: float = STALL_S) -> Outcome:
    """Run `experiment` with a process a worker. They end with this one, however it ends.

    Args:
        problem: the built one, to save building it again; it must be `experiment.problem`.

    Raises:
        ValueError: the experiment is not for the real clock and processes, has too many workers or needs a GPU that is not there.
        CannotContinue: too few workers are left, or nothing arrived for `stall_s`.
    """
    if experiment.clock != "real":
        raise ValueError("this experiment has clock 'virtual': simulate it, or choose clock 'real'")
    if experiment.engine != "processes":
        raise ValueError(f"this experiment has engine {experiment.engine!r}: run it with over_ray.run_over_ray, or leave engine out")
    if experiment.workers > MOST_WORKERS:
        raise ValueError(f"{experiment.workers} workers are too many for one machine's real clock: {MOST_WORKERS} at most, simulate more")
    if experiment.server_device == "cuda" and not gpu_count():
        raise ValueError("server_device 'cuda' needs a GPU, and this machine has none: choose 'cpu' or 'host'")
    problem = problem or experiment.open()
    exchange = open_exchange(experiment, problem)
    server = Server(experiment, problem, arithmetic_of(experiment.server_device))
    with Processes(experiment, exchange) as workers:
        workers.wait_until_ready(stall_s)
        with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
            end_s, busy_s = serve(server, workers, stall_s)
        workers.stop()
        outcome = server.outcome(end_s, workers.notes())
    arrived = sum(map(len, workers.times_s))
    return replace(outcome, batch_times_s=workers.some_times_s(), server_time_s=busy_s / arrived if arrived else None)
