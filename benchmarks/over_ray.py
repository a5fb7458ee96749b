"""The same protocols across machines: workers are Ray actors, the server is the process that calls,
`ray.wait` says who has arrived. Does the simulator hold there, too?

    python -m benchmarks.over_ray

runs the study's grid `synchrony/ray` (six minutes), and needs the extra `ray`.

`ray.wait(batches, num_returns=K)` is K-sync's whole waiting; here the state machine of `protocol`
decides what one arrival means, so all six protocols are one loop. Gradients travel through Ray's
object store, about a millisecond a call: a law's times should be tens of them.
"""

import ctypes
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
from benchmarks.synchrony.measure import MEASURES, measure, measure_protocol
from benchmarks.synchrony.real import STALL_S, check_real, serve
from threadpoolctl import threadpool_limits

from multigpu import paths
from multigpu.cli.command import Parser, add_records, answered, seconds
from multigpu.machine.private_network import (
    CLONE_NEWNET,
    check_allowed,
    raise_loopback,
    unshare,
)
from multigpu.runner.hosts.launching import LOOPBACK
from multigpu_study.synchrony.experiment import ProtocolExperiment
from multigpu_study.synchrony.grid import read_grid
from multigpu_study.synchrony.problems import Problem
from multigpu_study.synchrony.protocol import Decision
from multigpu_study.synchrony.server import Server


class RayWorker:
    """Work of one actor. `skip` runs in a thread of its own, so that it can end `batch`'s wait."""

    def __init__(self, text: str, worker: int) -> None:
        self.experiment = ProtocolExperiment.model_validate_json(text)
        self.problem = self.experiment.open()
        self.worker = worker
        self.times = self.experiment.times_of(worker)
        self.skipped = -1
        self.changed = threading.Condition()

    def ready(self) -> bool:
        return True

    def batch(self, parameters: np.ndarray | None, ticket: int) -> np.ndarray | None:
        """The gradient of one batch, no sooner than the law's time after the call; None for a batch
        that was skipped (or has none).
        """
        until_s = time.perf_counter() + self.times.time_s(ticket)
        gradient = None
        if ticket > self.skipped and self.problem is not None and parameters is not None:
            with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
                # a copy, as arrays from the object store cannot be written
                gradient = self.problem.gradient(parameters.copy(), self.worker, ticket)
        until_s = max(until_s, time.perf_counter()) + self.experiment.delay_of_s(self.worker)
        with self.changed:
            while ticket > self.skipped and (left_s := until_s - time.perf_counter()) > 0:
                self.changed.wait(left_s)
            return gradient if ticket > self.skipped else None

    def skip(self, ticket: int) -> None:
        """Batches up to this ticket are no longer wanted."""
        with self.changed:
            self.skipped = max(self.skipped, ticket)
            self.changed.notify()


def check_ray() -> None:
    """Refuse (ValueError) where the extra is not there; it is not imported."""
    if importlib.util.find_spec("ray") is None:
        raise ValueError(
            "Ray is not installed: pip install 'multigpu[ray]', or run on this machine with"
            " real.run_real"
        )


@contextmanager
def inside(what: str) -> Iterator[None]:
    """This thread, and what it starts, in a network of its own; where only root may, it stays or
    refuses (ValueError), as `check_allowed`.
    """
    try:
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    except OSError:
        before = -1
    try:
        unshare(CLONE_NEWNET)
    except (OSError, AttributeError) as error:  # AttributeError: a system that knows no namespaces
        check_allowed(what, f"and only root on Linux can give it a network of its own ({error})")
        yield
        return
    try:
        raise_loopback()
        yield
    finally:
        ctypes.CDLL(None, use_errno=True).setns(before, CLONE_NEWNET)
        os.close(before)


def run_over_ray(experiment: ProtocolExperiment, problem: Problem | None = None) -> Server:
    """Run `experiment` with Ray actors as workers. problem: its own, if it is built already.

    Uses the cluster that the process is connected to or that RAY_ADDRESS names, and is as open as
    that; else one is started that nothing outside this machine reaches. A worker whose actor dies
    leaves, and the batch it was computing is lost.

    Raises as `real.serve`, or ValueError: Ray is not installed or would listen everywhere, or the
    experiment is not for it; RuntimeError: Ray did not start or failed.
    """
    check_ray()
    check_real(experiment, "ray", "real.run_real")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a measurement reports to nobody
    import ray

    with ExitStack() as own:
        if not ray.is_initialized():
            where = {}
            if "RAY_ADDRESS" not in os.environ:
                own.enter_context(inside("Ray"))
                where = {"address": "local", "_node_ip_address": LOOPBACK}
            try:
                ray.init(include_dashboard=False, log_to_driver=False, **where)
            except Exception as error:
                # of no class of its own; it gives up after 30 s on a machine with much else to do
                raise RuntimeError(f"Ray did not start: {str(error).splitlines()[0]}") from None
            own.callback(ray.shutdown)
        try:
            server = Server(experiment, problem or experiment.open())
            actors = Actors(ray, server)
            with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
                end_s, _ = serve(server, actors, STALL_S)
                actors.skip(actors.pending.values())
            return server.end(end_s)
        except ray.exceptions.RayError as error:
            raise RuntimeError(f"Ray could not go on: {str(error).splitlines()[0]}") from None


class Actors:
    """The workers as the server has them: which reference is whose batch."""

    def __init__(self, ray: Any, server: Server) -> None:
        self.ray, self.running = ray, server.coordinator.running
        # actors wait more than they compute: none reserves a core
        kind = ray.remote(concurrency_groups={"control": 1})(RayWorker).options(num_cpus=0)
        text = server.experiment.model_dump_json()
        self.actors = [kind.remote(text, worker) for worker in range(server.experiment.workers)]
        ray.get([actor.ready.remote() for actor in self.actors])
        self.pending: dict[Any, tuple[int, int]] = {}  # reference -> worker, ticket
        self.taken: dict[int, np.ndarray | None] = {}
        # the latest parameters, and their reference in the object store
        self.held: tuple[Any, Any] = (None, None)

    def send(self, decision: Decision, parameters: np.ndarray | None) -> tuple[int, ...]:
        self.skip((job.worker, job.ticket) for job in decision.cancelled)
        if self.held[0] is not parameters:
            self.held = parameters, self.ray.put(parameters)
        for job in decision.started:
            self.pending[self.actors[job.worker].batch.remote(self.held[1], job.ticket)] = (
                job.worker,
                job.ticket,
            )
        return ()

    def receive(self, timeout_s: float) -> tuple[list[tuple[int, int]], list[int]]:
        ready, _ = self.ray.wait(list(self.pending), num_returns=1, timeout=max(timeout_s, 0.0))
        came, gone = [], []
        for reference in ready:
            worker, ticket = self.pending.pop(reference)
            if worker not in self.running or self.running[worker].ticket != ticket:
                continue  # cancelled, and skipped by its worker: there is nothing to apply
            try:
                gradient = self.ray.get(reference)
            except self.ray.exceptions.RayActorError:
                gone.append(worker)
                continue
            # a copy, as the object store's array goes with its reference
            self.taken[worker] = None if gradient is None else np.array(gradient)
            came.append((worker, ticket))
        return came, gone

    def take(self, worker: int) -> np.ndarray | None:
        return self.taken.pop(worker)

    def skip(self, jobs: Iterable[tuple[int, int]]) -> None:
        for worker, ticket in jobs:
            self.actors[worker].skip.options(concurrency_group="control").remote(ticket)


@answered
def main(words: Sequence[str] | None = None) -> int:
    """Run what has no Record yet; returns the exit code, 1 if a run failed and 2 for bad input."""
    parser = Parser(prog="over_ray", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--budget-s", type=seconds, help="seconds to spend")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_records(parser, paths.SYNCHRONY)
    arguments = parser.parse_args(words)
    check_ray()
    summary = measure(
        read_grid("ray"),
        arguments.records,
        arguments.budget_s,
        not arguments.quiet,
        measures=MEASURES | {ProtocolExperiment: partial(measure_protocol, real=run_over_ray)},
    )
    print(summary)
    return summary.exit_code


if __name__ == "__main__":
    sys.exit(main())
