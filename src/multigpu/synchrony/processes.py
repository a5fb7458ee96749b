"""The processes of a real run: one server, P workers. Small messages travel in pipes, vectors lie in an `exchange`.

A message that was read orders what was written before it. A cancelled worker may read parameters that are being overwritten, but then
it throws its gradient away, or the server does: an answer with an old ticket is never looked at.

Cancelling is sending the next job: the worker sees it at its next check, which ends its wait at once but not its computation.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from multigpu.measure.process import end_with_parent
from multigpu.synchrony.checkpoint import checkpoint_path, read_checkpoint, write_checkpoint
from multigpu.synchrony.exchange import ON_HOST, Arithmetic, Exchange, Vector
from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.laws import StepTimes
from multigpu.synchrony.problems import Problem
from multigpu.synchrony.protocol import CannotContinue, Decision
from multigpu.synchrony.server import Server

READY = "ready"
WARM_UP = 2
"""Gradients that a worker computes and throws away before it is ready; one more goes through the exchange."""
MOST_TIMES = 64
"""Batches of a worker whose time is kept, spread evenly over the run."""
END_S = 8.0
"""What the server waits for its workers to end; whoever started it gives it a little longer."""


def last_words_path(folder: Path, worker: int) -> Path:
    """Where a worker leaves the sentence that says why it ended, if the run did not end well."""
    return folder / f"worker-{worker}.txt"


def arithmetic_of(server_device: str) -> Arithmetic:
    """Of an Experiment's `server_device`; a device's imports PyTorch."""
    if server_device == "host":
        return ON_HOST
    from multigpu.synchrony.on_device import DeviceArithmetic

    return DeviceArithmetic(server_device)


def open_exchange(
    experiment: Experiment,
    problem: Problem | None,
    memory_name: str,
    *,
    workers: Iterable[Connection] = (),
    server: Connection | None = None,
) -> Exchange:
    """The server's, which names its `workers`, or a worker's, which names its `server`: on a device the server makes the memory and sends
    every worker its handle as the first message.

    Raises:
        EOFError, OSError: (of a worker) the server has ended.
    """
    if experiment.server_device == "host" or problem is None:
        return Exchange(memory_name, experiment.workers, problem)
    from multigpu.synchrony.on_device import DeviceExchange

    if server is not None:
        return DeviceExchange(server.recv())
    return DeviceExchange.make(experiment.server_device, experiment.workers, problem, workers)


def worker_main(connection: Connection, memory_name: str, text: str, worker: int, folder: Path) -> None:
    """Compute batches until told to stop (None); end with one sentence if the server ends first."""
    end_with_parent()
    experiment = Experiment.model_validate_json(text)
    problem = experiment.open()
    exchange: Exchange | None = None
    try:
        with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
            if problem is not None:  # what a first batch costs, of a GPU above all, belongs to no run
                for ticket in range(WARM_UP):
                    problem.gradient(problem.initial(experiment.seed), worker, ticket)
            exchange = open_exchange(experiment, problem, memory_name, server=connection)
            if problem is not None:
                exchange.give(worker, problem.initial(experiment.seed))
                exchange.answer(worker, exchange.gradient(problem, worker, 0))
            connection.send(READY)
            _work(connection, exchange, experiment, problem, worker)
    except (EOFError, OSError, RuntimeError) as error:
        # memory that the server owned on a device may fail before its pipe is read
        if isinstance(error, RuntimeError) and not has_closed(connection, 1.0):
            raise
        sentence = f"worker {worker}: the server has ended; resume from {checkpoint_path(folder).name} in the run's folder"
        last_words_path(folder, worker).write_text(sentence + "\n")
        print(sentence, file=sys.stderr)
        os._exit(1)
    finally:
        if exchange is not None:
            exchange.close()


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


def has_closed(connection: Connection, timeout_s: float = 0.0) -> bool:
    """Whether the other end is closed, or will be within so many seconds; what it sent before is thrown away."""
    until_s = time.monotonic() + timeout_s
    try:
        while connection.poll(max(0.0, until_s - time.monotonic())):
            connection.recv()
    except (EOFError, OSError):
        return True
    return False


class Pipes:
    """The server's ends of the workers' pipes; a worker whose pipe breaks is gone."""

    def __init__(self, connections: Sequence[Connection], exchange: Exchange) -> None:
        self.open = dict(enumerate(connections))
        self.exchange = exchange
        self.over_s: list[float] = []
        self.times_s: list[list[float]] = [[] for _ in connections]
        """By worker, seconds of every batch that arrived, without the delay injected."""
        self.busy_s = 0.0

    def send(self, decision: Decision, parameters: Vector | None) -> list[int]:
        """Give out the jobs started; the workers found gone."""
        gone = []
        for job in decision.started:
            if parameters is not None:
                self.exchange.give(job.worker, parameters)
            try:
                self.open[job.worker].send(job.ticket)
            except (BrokenPipeError, ConnectionResetError):
                gone.append(job.worker)
        return gone

    def receive(self, timeout_s: float) -> tuple[list[tuple[int, int]], list[int]]:
        """((worker, ticket) of gradients that arrived, workers found gone), after at most `timeout_s`."""
        came, gone = [], []
        ready = wait(list(self.open.values()), timeout_s)
        for worker, connection in self.open.items():
            if connection in ready:
                try:
                    ticket, over_s, batch_s = connection.recv()
                except (EOFError, ConnectionResetError):
                    gone.append(worker)
                else:
                    came.append((worker, ticket))
                    self.over_s.append(over_s)
                    self.times_s[worker].append(batch_s)
        return came, gone

    def close(self, worker: int) -> None:
        self.open.pop(worker).close()

    def stop(self) -> None:
        for connection in self.open.values():
            try:
                connection.send(None)
            except OSError:
                continue

    def wait_for_end(self, timeout_s: float) -> None:
        """Until the workers have ended: what they map of this process's memory must outlive them."""
        until_s = time.monotonic() + timeout_s
        for connection in self.open.values():
            has_closed(connection, max(0.0, until_s - time.monotonic()))


def server_main(
    connections: Sequence[Connection],
    memory_name: str,
    text: str,
    folder: Path,
    resume: bool,
    checkpoint_updates: int,
    stall_s: float,
    result: Connection,
) -> None:
    """Drive the server on the clock; send (Outcome, "") or (None, sentence) to whoever started the run."""
    end_with_parent()
    experiment = Experiment.model_validate_json(text)
    problem = experiment.open()
    exchange = open_exchange(experiment, problem, memory_name, workers=connections)
    checkpoint = read_checkpoint(folder, experiment) if resume else None
    server = Server(experiment, problem, checkpoint, arithmetic_of(experiment.server_device))
    pipes = Pipes(connections, exchange)
    try:
        for worker, connection in pipes.open.items():
            if not connection.poll(stall_s) or connection.recv() != READY:
                raise CannotContinue(f"worker {worker} was not ready within {stall_s:g} s")
        with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
            end_s = _serve(server, pipes, folder, checkpoint_updates, stall_s)
        pipes.stop()
        outcome = server.outcome(end_s, _notes(pipes))
        arrived = sum(map(len, pipes.times_s))
        times_s = tuple(thinned(times, MOST_TIMES) for times in pipes.times_s)
        result.send((replace(outcome, batch_times_s=times_s, server_time_s=pipes.busy_s / arrived if arrived else None), ""))
        pipes.wait_for_end(END_S)
    except (CannotContinue, EOFError) as error:
        result.send((None, str(error) or "a worker ended before the run began"))
    finally:
        exchange.close()


def _serve(server: Server, pipes: Pipes, folder: Path, checkpoint_updates: int, stall_s: float) -> float:
    """Until the budget is spent; the seconds that took."""
    offset_s = server.first.elapsed_s if server.first else 0.0
    begun = time.perf_counter() - offset_s
    gone = pipes.send(server.begin(), server.parameters)
    saved = server.version
    write_checkpoint(folder, server.experiment, server.checkpoint(offset_s))
    while True:
        for worker in gone:
            pipes.close(worker)
            server.left(worker, time.perf_counter() - begun)
        now_s = time.perf_counter() - begun
        if server.finished(now_s):
            write_checkpoint(folder, server.experiment, server.checkpoint(now_s))
            return now_s
        try:
            server.coordinator.check_possible()
        except CannotContinue:
            write_checkpoint(folder, server.experiment, server.checkpoint(now_s))
            raise
        left_s = stall_s if server.experiment.time_s is None else min(stall_s, server.experiment.time_s - now_s)
        came, gone = pipes.receive(left_s)
        now_s = time.perf_counter() - begun
        if not came and not gone and not server.finished(now_s):
            raise CannotContinue(f"no gradient arrived for {stall_s:g} s: {len(pipes.open)} workers are silent")
        for worker, ticket in came:
            if server.finished(now_s):
                break
            gradient = pipes.exchange.take(worker) if server.problem else None
            decision = server.arrived(worker, ticket, gradient, time.perf_counter() - begun)
            gone += [w for w in pipes.send(decision, server.parameters) if w not in gone]
        pipes.busy_s += time.perf_counter() - begun - now_s
        if server.version >= saved + checkpoint_updates:
            saved = server.version
            write_checkpoint(folder, server.experiment, server.checkpoint(time.perf_counter() - begun))


def thinned(values: Sequence[float], most: int) -> tuple[float, ...]:
    """At most so many of the values, evenly spread."""
    if len(values) <= most:
        return tuple(values)
    return tuple(values[int(index)] for index in np.linspace(0, len(values) - 1, most))


def _notes(pipes: Pipes) -> list[str]:
    """How late workers were: a wait that ends late, or a gradient that took longer than its law's time."""
    if not pipes.over_s:
        return []
    return [f"batches ended {np.median(pipes.over_s) * 1e3:.2f} ms after their law's time (median; most {max(pipes.over_s) * 1e3:.2f} ms)"]
