"""Experiments for real: this process is the server, its workers are processes of this machine, with
the law's times injected as delays.

Small messages travel in pipes, vectors lie in an `Exchange`. A message that was read orders what
was written before it. A cancelled worker may read parameters that are being overwritten, but then
its gradient is thrown away: an answer with an old ticket is never looked at. Cancelling is sending
    the next job, which ends the worker's wait at once but not its computation.
"""

import multiprocessing
import time
from collections.abc import Collection
from multiprocessing.connection import Connection, wait
from typing import Protocol, Self

import numpy as np
from benchmarks.synchrony.exchange import SharedMemory, arithmetic_of, open_exchange
from threadpoolctl import threadpool_limits

from multigpu.machine.machine import gpu_count
from multigpu.machine.process import end_with_parent
from multigpu_study.synchrony.experiment import Engine, ProtocolExperiment
from multigpu_study.synchrony.problems import Problem
from multigpu_study.synchrony.protocol import CannotContinue, Decision
from multigpu_study.synchrony.server import Server, Vector

MOST_WORKERS = 64  # on one machine; the simulator goes further
STALL_S = 120.0  # a run ends with a sentence if nothing arrives for so long
READY = "ready"
# gradients that a worker throws away before it is ready; one more goes through the exchange
WARM_UP = 2
MOST_TIMES = 64  # batches of a worker whose time is kept, spread evenly over the run
END_S = 10.0  # what workers get to end by themselves


class Workers(Protocol):
    """The workers of a run on the real clock, as its server sees them.

    send: give out the jobs started, on these parameters, and end those cancelled; the workers found
        gone. receive: (worker, ticket) of gradients that arrived, and workers found gone, after at
        most `timeout_s`. take: the gradient that a worker has answered with.
    """

    def send(self, decision: Decision, parameters: Vector | None) -> Collection[int]: ...

    def receive(self, timeout_s: float) -> tuple[list[tuple[int, int]], list[int]]: ...

    def take(self, worker: int) -> Vector | None: ...


def serve(server: Server, workers: Workers, stall_s: float) -> tuple[float, float]:
    """Drive the server on the clock until its budget is spent; the seconds that took, and those for
    which the server was busy. Raises
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
            raise CannotContinue(
                f"no gradient arrived for {stall_s:g} s: {len(server.coordinator.running)} workers"
                " are silent"
            )
        for worker, ticket in came:
            if server.finished(arrived - begun):
                break
            gradient = workers.take(worker) if server.problem else None
            decision = server.arrived(worker, ticket, gradient, time.perf_counter() - begun)
            gone |= {*workers.send(decision, server.parameters)}
        busy_s += time.perf_counter() - arrived


def worker_main(connection: Connection, exchange: SharedMemory, text: str, worker: int) -> None:
    """Compute batches until the server lets go of the pipe, or is gone."""
    end_with_parent()
    experiment = ProtocolExperiment.model_validate_json(text)
    problem = experiment.open()
    try:
        with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
            # what a first batch costs, of a GPU above all, belongs to no run
            if problem is not None:
                for ticket in range(WARM_UP):
                    problem.gradient(problem.initial(experiment.seed), worker, ticket)
                exchange.give(worker, problem.initial(experiment.seed))
                exchange.answer(worker, exchange.gradient(problem, worker, 0))
            connection.send(READY)
            _work(connection, exchange, experiment, problem, worker)
    except (EOFError, ConnectionError):
        return


def _work(
    connection: Connection,
    exchange: SharedMemory,
    experiment: ProtocolExperiment,
    problem: Problem | None,
    worker: int,
) -> None:
    times, delay_s = experiment.times_of(worker), experiment.delay_of_s(worker)
    ticket = connection.recv()
    while True:
        begun_s = time.perf_counter()
        gradient = exchange.gradient(problem, worker, ticket) if problem else None
        computed_s = time.perf_counter() - begun_s
        until_s = begun_s + max(times.time_s(ticket), computed_s) + delay_s
        # the injected delay is a wait for the next message, which only a cancelled worker gets
        # before it answers
        if not connection.poll(max(0.0, until_s - time.perf_counter())):
            if gradient is not None:
                exchange.answer(worker, gradient)
            now_s = time.perf_counter()
            late_s = now_s - begun_s - times.time_s(ticket) - delay_s
            connection.send((ticket, late_s, now_s - begun_s - delay_s))
        ticket = connection.recv()
        while connection.poll():
            ticket = connection.recv()


class Processes:
    """The server's workers: one whose pipe breaks is gone; all end when the context is left."""

    def __init__(self, experiment: ProtocolExperiment, exchange: SharedMemory) -> None:
        # spawned, not forked: the process that starts a run may hold threads and a framework, and
        # CUDA does not survive a fork
        context = multiprocessing.get_context("spawn")
        self.exchange = exchange
        self.open: dict[int, Connection] = {}
        self.processes = []
        self.over_s: list[float] = []
        # of every batch that arrived, without the delay
        self.times_s: list[list[float]] = [[] for _ in range(experiment.workers)]
        text = experiment.model_dump_json()
        for worker in range(experiment.workers):
            self.open[worker], theirs = context.Pipe()
            process = context.Process(
                target=worker_main,
                args=(theirs, exchange, text, worker),
                name=f"worker-{worker}",
                daemon=True,
            )
            self.processes.append(process)
            process.start()
            # only the two processes of a pipe may hold it, or the end of one would stay unnoticed
            # by the other
            theirs.close()

    def wait_until_ready(self, stall_s: float) -> None:
        for worker, connection in self.open.items():
            try:
                if not connection.poll(stall_s) or connection.recv() != READY:
                    raise CannotContinue(f"worker {worker} was not ready within {stall_s:g} s")
            except (EOFError, ConnectionError):
                raise CannotContinue(f"worker {worker} ended before the run began") from None

    def send(self, decision: Decision, parameters: Vector | None) -> list[int]:
        gone = []
        for worker, ticket, _ in decision.started:
            if worker in self.open:
                if parameters is not None:
                    self.exchange.give(worker, parameters)
                try:
                    self.open[worker].send(ticket)
                except ConnectionError:
                    gone.append(worker)
        return self._closed(gone)

    def receive(self, timeout_s: float) -> tuple[list[tuple[int, int]], list[int]]:
        came, gone = [], []
        ready = wait(list(self.open.values()), timeout_s)
        for worker, connection in self.open.items():
            if connection in ready:
                try:
                    ticket, over_s, batch_s = connection.recv()
                except (EOFError, ConnectionError):
                    gone.append(worker)
                else:
                    came.append((worker, ticket))
                    self.over_s.append(over_s)
                    self.times_s[worker].append(batch_s)
        return came, self._closed(gone)

    def take(self, worker: int) -> Vector:
        return self.exchange.take(worker)

    def _closed(self, gone: list[int]) -> list[int]:
        for worker in gone:
            self.open.pop(worker).close()
        return gone

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._closed(list(self.open))
        until_s = time.monotonic() + END_S
        for process in self.processes:
            process.join(max(0.0, until_s - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def check_real(experiment: ProtocolExperiment, engine: Engine, other: str) -> None:
    """Refuse (ValueError) what is not for the real clock and this engine; `other` runs it."""
    if experiment.clock != "real":
        raise ValueError("this experiment has clock 'virtual': simulate it, or choose clock 'real'")
    if experiment.engine != engine:
        raise ValueError(
            f"this experiment has engine {experiment.engine!r}: run it with {other}, or choose"
            f" engine {engine!r}"
        )


def run_real(
    experiment: ProtocolExperiment, problem: Problem | None = None, *, stall_s: float = STALL_S
) -> Server:
    """Run `experiment` with a process a worker. They end with this one, however it ends. problem:
    its own, if it is built already. Raises CannotContinue as `serve`, or ValueError: the experiment
    is not for the real clock and processes, or not for this machine.
    """
    check_real(experiment, "processes", "benchmarks/over_ray.py")
    if experiment.workers > MOST_WORKERS:
        raise ValueError(
            f"{experiment.workers} workers are too many for one machine's real clock:"
            f" {MOST_WORKERS} at most, simulate more"
        )
    if experiment.server_device == "cuda" and not gpu_count():
        raise ValueError(
            "server_device 'cuda' needs a GPU, and this machine has none: choose 'cpu' or 'host'"
        )
    problem = problem or experiment.open()
    exchange = open_exchange(experiment, problem)
    server = Server(experiment, problem, arithmetic_of(experiment.server_device))
    with Processes(experiment, exchange) as workers:
        workers.wait_until_ready(stall_s)
        with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
            end_s, busy_s = serve(server, workers, stall_s)
    # a wait that ended late, or a gradient that took longer than its law's time
    if over_s := workers.over_s:
        middle, most = np.median(over_s) * 1e3, max(over_s) * 1e3
        server.notes = [
            f"batches ended {middle:.2f} ms after their law's time (median; most {most:.2f} ms)"
        ]
        server.server_time_s = busy_s / len(over_s)
    places = [
        np.unique(np.linspace(0, max(len(own) - 1, 0), MOST_TIMES).astype(int))[: len(own)]
        for own in workers.times_s
    ]
    server.batch_times_s = [
        np.array(own)[chosen].tolist() for own, chosen in zip(workers.times_s, places, strict=True)
    ]
    return server.end(end_s)
