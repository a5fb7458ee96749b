"""The worker processes of a real run. Small messages travel in pipes, vectors lie in an `exchange`.

A message that was read orders what was written before it. A cancelled worker may read parameters that are being overwritten, but then
it throws its gradient away, or the server does: an answer with an old ticket is never looked at.

Cancelling is sending the next job: the worker sees it at its next check, which ends its wait at once but not its computation.
"""

import multiprocessing
import time
from multiprocessing.connection import Connection, wait
from typing import Self

import numpy as np
from threadpoolctl import threadpool_limits

from multigpu.measure.process import end_with_parent
from multigpu.synchrony.exchange import Exchange, Vector
from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.laws import StepTimes
from multigpu.synchrony.problems import Problem
from multigpu.synchrony.protocol import CannotContinue, Decision

READY = "ready"
WARM_UP = 2
"""Gradients that a worker computes and throws away before it is ready; one more goes through the exchange."""
MOST_TIMES = 64
"""Batches of a worker whose time is kept, spread evenly over the run."""
END_S = 10.0
"""What workers get to end by themselves."""


def worker_main(connection: Connection, exchange: Exchange, text: str, worker: int) -> None:
    """Compute batches until told to stop (None), or until the server is gone."""
    end_with_parent()
    experiment = Experiment.model_validate_json(text)
    problem = experiment.open()
    try:
        with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
            if problem is not None:  # what a first batch costs, of a GPU above all, belongs to no run
                for ticket in range(WARM_UP):
                    problem.gradient(problem.initial(experiment.seed), worker, ticket)
                exchange.give(worker, problem.initial(experiment.seed))
                exchange.answer(worker, exchange.gradient(problem, worker, 0))
            connection.send(READY)
            _work(connection, exchange, experiment, problem, worker)
    except (EOFError, ConnectionError):
        return


def _work(connection: Connection, exchange: Exchange, experiment: Experiment, problem: Problem | None, worker: int) -> None:
    """One batch after the other, until the job is None."""
    times = StepTimes(experiment.law, experiment.seed, worker, experiment.slowdown_of(worker))
    delay_s = experiment.delay_of_s(worker)
    ticket = connection.recv()
    while ticket is not None:
        begun_s = time.perf_counter()
        gradient = exchange.gradient(problem, worker, ticket) if problem else None
        computed_s = time.perf_counter() - begun_s
        until_s = begun_s + max(times.time_s(ticket), computed_s) + delay_s
        # the injected delay is a wait for the next message, which only a cancelled worker gets before it answers
        if not connection.poll(max(0.0, until_s - time.perf_counter())):
            if gradient is not None:
                exchange.answer(worker, gradient)
            now_s = time.perf_counter()
            connection.send((ticket, now_s - begun_s - times.time_s(ticket) - delay_s, now_s - begun_s - delay_s))
        ticket = connection.recv()
        while connection.poll():
            ticket = connection.recv()


class Processes:
    """The workers of a real run as the server has them; one whose pipe breaks is gone. When it is left as a context they have ended, and
    the memory that they map is free.
    """

    def __init__(self, experiment: Experiment, exchange: Exchange) -> None:
        # spawned, not forked: the process that starts a run may hold threads and a framework, and CUDA does not survive a fork
        context = multiprocessing.get_context("spawn")
        self.exchange = exchange
        self.open: dict[int, Connection] = {}
        self.processes = []
        self.over_s: list[float] = []
        self.times_s: list[list[float]] = [[] for _ in range(experiment.workers)]
        """By worker, seconds of every batch that arrived, without the delay injected."""
        text = experiment.model_dump_json()
        for worker in range(experiment.workers):
            self.open[worker], theirs = context.Pipe()
            process = context.Process(target=worker_main, args=(theirs, exchange, text, worker), name=f"worker-{worker}", daemon=True)
            self.processes.append(process)
            process.start()
            theirs.close()  # only the two processes of a pipe may hold it, or the end of one would stay unnoticed by the other

    def wait_until_ready(self, stall_s: float) -> None:
        """Until every worker has warmed up, each within so many seconds.

        Raises:
            CannotContinue: one has not.
        """
        for worker, connection in self.open.items():
            try:
                if not connection.poll(stall_s) or connection.recv() != READY:
                    raise CannotContinue(f"worker {worker} was not ready within {stall_s:g} s")
            except (EOFError, ConnectionError):
                raise CannotContinue(f"worker {worker} ended before the run began") from None

    def send(self, decision: Decision, parameters: Vector | None) -> list[int]:
        """Give out the jobs started; the workers found gone."""
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
        """((worker, ticket) of gradients that arrived, workers found gone), after at most `timeout_s`."""
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
        """The gradient that this worker has answered with."""
        return self.exchange.take(worker)

    def _closed(self, gone: list[int]) -> list[int]:
        for worker in gone:
            self.open.pop(worker).close()
        return gone

    def some_times_s(self) -> tuple[tuple[float, ...], ...]:
        """By worker, the times of at most `MOST_TIMES` batches, evenly spread."""
        chosen = (np.unique(np.linspace(0, max(len(own) - 1, 0), MOST_TIMES).astype(int))[: len(own)] for own in self.times_s)
        return tuple(tuple(own[place] for place in places) for own, places in zip(self.times_s, chosen, strict=True))

    def notes(self) -> list[str]:
        """How late workers were: a wait that ends late, or a gradient that took longer than its law's time."""
        if not self.over_s:
            return []
        middle, most = np.median(self.over_s) * 1e3, max(self.over_s) * 1e3
        return [f"batches ended {middle:.2f} ms after their law's time (median; most {most:.2f} ms)"]

    def stop(self) -> None:
        """Let every worker end after its batch."""
        for connection in self.open.values():
            try:
                connection.send(None)
            except OSError:
                continue

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
