"""Experiments on a virtual clock: a heap of arrivals drives the server."""

import heapq
import random
from collections.abc import Iterable

import numpy as np
from threadpoolctl import threadpool_limits

from multigpu_study.synchrony.experiment import ProtocolExperiment
from multigpu_study.synchrony.laws import Exponential
from multigpu_study.synchrony.problems import Problem
from multigpu_study.synchrony.protocol import GradientTask, ProtocolName
from multigpu_study.synchrony.server import Server


def simulate(experiment: ProtocolExperiment, problem: Problem | None = None) -> Server:
    """Run `experiment` on a virtual clock; the same experiment gives the same bits. problem: its
    own, if it is built already.

    The network takes no time, and the server, if it takes any, handles one gradient after the
    other. Gradients are computed when they arrive, on the version that the worker was given.
    Arrivals at one instant come in random order. A run that diverges runs on.
    """
    problem = problem or experiment.open()
    server = Server(experiment, problem)
    times = [experiment.times_of(worker) for worker in range(experiment.workers)]
    ties = random.Random(experiment.seed)
    heap: list[tuple[float, float, int, int]] = []  # time, tie, worker, ticket

    def plan(jobs: Iterable[GradientTask], now_s: float) -> None:
        for worker, ticket, _ in jobs:
            begun_s, until_s = computing[worker]
            # another can begin after this one, or in its place if it has not begun
            free_s = begun_s if begun_s > now_s else max(now_s, until_s)
            begin_s = now_s if experiment.preemptive else free_s
            end_s = begin_s + times[worker].time_s(ticket)
            computing[worker] = (begin_s, end_s)
            arrival_s = end_s + experiment.delay_of_s(worker)
            heapq.heappush(heap, (arrival_s, ties.random(), worker, ticket))

    computing = [(0.0, 0.0)] * experiment.workers  # begin and end of each one's latest computation
    now_s = 0.0
    running = server.coordinator.running
    with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
        plan(server.begin().started, now_s)
        while not server.finished(now_s):
            time_s, _, worker, ticket = heapq.heappop(heap)
            if worker not in running or running[worker].ticket != ticket:
                continue  # cancelled meanwhile
            if experiment.time_s is not None and time_s > experiment.time_s:
                now_s = experiment.time_s
                break
            # what arrived while the server was busy waits
            now_s = max(now_s, time_s) + experiment.server_s
            if problem is not None:
                gradient = problem.gradient(server.parameters_of(worker), worker, ticket)
            else:
                gradient = None
            plan(server.arrived(worker, ticket, gradient, now_s).started, now_s)
        return server.end(now_s)


def simulated_pace(
    protocol: ProtocolName, workers: int, gradients: int, late: float, applied: int = 1200
) -> dict[str, float]:
    """Exponential times of mean 1, the last worker `late` times as slow, about `applied` gradients.
    speed: gradients applied, over what workers that never wait could; age: the mean staleness of a
        gradient, in updates.
    """
    slowdown, updates = (1.0,) * (workers - 1) + (float(late),), applied // gradients
    law = Exponential(scale_s=1.0)
    run = simulate(
        ProtocolExperiment(
            protocol=protocol,
            workers=workers,
            gradients=gradients,
            law=law,
            slowdown=slowdown,
            updates=updates,
        )
    )
    age = sum(age * count for age, count in run.staleness.items()) / sum(run.staleness.values())
    return {"speed": gradients * updates / run.update_times_s[-1] / workers, "age": age}
