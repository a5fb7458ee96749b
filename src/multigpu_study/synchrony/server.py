"""The server: a Coordinator, the parameters, the rate rule, the accounts, and the curve of loss
against time; and where a real run keeps vectors. Whoever drives it (the simulator, a real run, the
replay of its arrivals in a test) owns the clock and passes the time.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from multigpu_study.synchrony.experiment import BoundedRate, ProtocolExperiment, rates_of
from multigpu_study.synchrony.problems import Problem
from multigpu_study.synchrony.protocol import Coordinator, Decision, GradientTask

Vector = Any  # an array, or a tensor on a device


class Arithmetic:
    """Where a server keeps vectors: `place` puts an array's values there, `fetch` gives a vector's
    on the host, not to be written.
    """

    def place(self, array: np.ndarray) -> Vector:
        return array

    def fetch(self, vector: Vector) -> np.ndarray:
        return np.asarray(vector)


ON_HOST = Arithmetic()


class CurvePoint(NamedTuple):
    """Loss and error (share of test rows wrong; None without classes) after so many updates and
    gradients, `time_s` into the run.
    """

    time_s: float
    updates: int
    gradients: int
    loss: float
    error: float | None


ARRIVED, LEFT = 0, 1


class Event(NamedTuple):
    """A log's line: ARRIVED or LEFT, the worker; `ticket`, `version` of what arrived, else -1."""

    kind: int
    worker: int
    ticket: int = -1
    version: int = -1


@dataclass(frozen=True)
class Accounts:
    """Where the batches and the workers' seconds went. `started == applied + waiting + running +
    cancelled + lost`.

    waiting: arrived, for an update that the run did not reach; running: being computed at the end;
        cancelled: given up for an update; lost: with the worker that ended. late: cancelled batches
        whose gradient arrived nevertheless, and was dropped (real runs only).
    busy_s, cancelled_s, lost_s: worker-seconds spent on gradients that arrived in time, on
        cancelled and on lost batches.
    idle_s: worker-seconds between a gradient's arrival and the worker's next start, once that came.
    received, sent: gradients received (late ones too) and parameter vectors sent; times the
        vector's bytes it is the traffic.
    versions_held: most parameter vectors the server held at once, to know w_tau of every batch
        under way.
    """

    started: int
    applied: int
    waiting: int
    running: int
    cancelled: int
    lost: int
    late: int
    busy_s: float
    cancelled_s: float
    lost_s: float
    idle_s: float
    received: int
    sent: int
    versions_held: int


class Server:
    """One run's server, and when that has ended what the run gave. Times are seconds since the
    start.

    parameters: like gradients a vector of `arithmetic`; when the run has ended, an array on the
        host.
    update_times_s: of every update. staleness: gradients by staleness, own update not counted.
        events: the log.
    curve, end_s: when the run has ended; parameters at about `evaluations` evenly spread parts of
        the budget. Of a real run: batch_times_s, by worker, seconds of up to 64 of its batches,
        from the parameters' arrival to the gradient's leaving, without the delay injected;
        server_time_s, the mean seconds that the server was busy with one gradient.
    """

    def __init__(
        self,
        experiment: ProtocolExperiment,
        problem: Problem | None,
        arithmetic: Arithmetic = ON_HOST,
    ) -> None:
        self.experiment, self.problem, self.arithmetic = experiment, problem, arithmetic
        self.coordinator = Coordinator(
            experiment.protocol, experiment.workers, experiment.gradients
        )
        self.parameters: Vector | None = (
            None if problem is None else arithmetic.place(problem.initial(experiment.seed))
        )
        self.update_times_s: list[float] = []
        self.staleness: Counter[int] = Counter()
        self.events: list[Event] = []
        self.curve: list[CurvePoint] = []
        self.end_s = math.nan
        self.notes: list[str] = []
        self.batch_times_s: list[list[float]] = []
        self.server_time_s: float | None = None
        self._taken: list[tuple[float, int, int, Vector]] = []
        self._mark = 0.0  # the part of the budget at which parameters are taken down again
        self._gradients: dict[GradientTask, Vector] = {}
        # parameters and how many batches need them
        self._versions: dict[int, tuple[Vector, int]] = {}
        # by worker, when its batch started or its gradient arrived
        self._since = [0.0] * experiment.workers
        self._seconds: dict[str, Any] = {
            "busy_s": 0.0,
            "cancelled_s": 0.0,
            "lost_s": 0.0,
            "idle_s": 0.0,
        }
        self._versions_held = 0

    def begin(self) -> Decision:
        decision = self.coordinator.begin()
        self._start(decision, 0.0)
        self._offer(0.0)
        return decision

    def parameters_of(self, worker: int) -> Vector:
        """Those that the worker's batch is computed on."""
        return self._versions[self.coordinator.running[worker].version][0]

    def arrived(self, worker: int, ticket: int, gradient: Vector | None, now_s: float) -> Decision:
        """A gradient is there. `gradient` must not change afterwards."""
        decision = self.coordinator.arrived(worker, ticket)
        if decision.late:
            return decision
        job = decision.update[-1] if decision.update else self.coordinator.waiting[-1]
        self.events.append(Event(ARRIVED, *job))
        self._spend("busy_s", worker, now_s)
        if gradient is not None:
            self._gradients[job] = gradient
        for other in decision.cancelled:
            self._spend("cancelled_s", other.worker, now_s)
            self._release(other)
        if decision.update:
            self._apply(decision.update)
            self.update_times_s.append(now_s)
            self._offer(now_s)
        self._start(decision, now_s)
        return decision

    def left(self, worker: int, now_s: float) -> None:
        """A worker is gone, and with it the batch that it was computing."""
        job = self.coordinator.left(worker)
        self.events.append(Event(LEFT, worker))
        if job is not None:
            self._spend("lost_s", worker, now_s)
            self._release(job)

    def finished(self, now_s: float) -> bool:
        return self._spent(now_s) >= 1

    def _spent(self, now_s: float) -> float:
        """The part of the budget."""
        return max(
            self.coordinator.version / (self.experiment.updates or math.inf),
            now_s / (self.experiment.time_s or math.inf),
        )

    def end(self, end_s: float) -> Self:
        """End the run: evaluate its curve, which takes time; bring its parameters to the host."""
        self.end_s = end_s
        if self.problem is not None:
            if not self._taken or self._taken[-1][1] != self.coordinator.version:
                self._take(end_s)
            held = [(t, u, g, self.arithmetic.fetch(w)) for t, u, g, w in self._taken]
            with np.errstate(over="ignore", invalid="ignore"):
                self.curve = [
                    CurvePoint(t, u, g, self.problem.loss(w), self.problem.error(w))
                    for t, u, g, w in held
                ]
            self.parameters = self.arithmetic.fetch(self.parameters)
        return self

    @property
    def accounts(self) -> Accounts:
        c, waiting = self.coordinator, len(self.coordinator.waiting)
        return Accounts(
            *(c.started, c.applied, waiting, len(c.running), c.cancelled, c.lost, c.late),
            **self._seconds,
            received=c.applied + waiting + c.late,
            sent=c.started,
            versions_held=self._versions_held,
        )

    def block_times_s(self, blocks: int = 20) -> np.ndarray:
        """Seconds per update in successive parts of equally many updates, [blocks or fewer]; what
        does not divide is left out at the end. They are nearly independent where single updates are
        not (async), so they give an interval and a median.
        """
        size = max(1, len(self.update_times_s) // blocks)
        return np.diff([0.0, *self.update_times_s[size - 1 :: size]]) / size

    def _offer(self, now_s: float) -> None:
        """Take the parameters down where the next part of the budget is spent; they are evaluated
        after the run, to cost no time in it.
        """
        spent, points = self._spent(now_s), self.experiment.evaluations
        if self.problem is not None and spent >= self._mark:
            self._take(now_s)
            # 1e-9: 0.3 of a budget is reached by 3 of 10 updates, whatever the rounding
            self._mark = (math.floor(spent * points + 1e-9) + 1) / points - 1e-9

    def _take(self, now_s: float) -> None:
        self._taken.append(
            (now_s, self.coordinator.version, self.coordinator.applied, self.parameters)
        )

    def _spend(self, on: str, worker: int, now_s: float) -> None:
        self._seconds[on] += now_s - self._since[worker]
        self._since[worker] = now_s

    def _start(self, decision: Decision, now_s: float) -> None:
        for job in decision.started:
            self._spend("idle_s", job.worker, now_s)
            if self.parameters is not None:
                _, users = self._versions.get(job.version, (self.parameters, 0))
                self._versions[job.version] = (self.parameters, users + 1)
        self._versions_held = max(self._versions_held, len(self._versions))

    def _release(self, job: GradientTask) -> None:
        if self.parameters is not None:
            parameters, users = self._versions.pop(job.version)
            if users > 1:
                self._versions[job.version] = (parameters, users - 1)

    def _apply(self, jobs: Sequence[GradientTask]) -> None:
        """Subtract the mean of rate_i g_i, added up in order of arrival; a new array, as batches
        under way need the old one.
        """
        ages = [self.coordinator.version - 1 - job.version for job in jobs]
        self.staleness.update(ages)
        if self.problem is None or self.experiment.rate is None:
            return
        rule, now = self.experiment.rate, self.parameters
        squares: list[float] = []
        with np.errstate(over="ignore", invalid="ignore"):
            if isinstance(rule, BoundedRate):
                squares = [
                    float(((now - self._versions[job.version][0]) ** 2).sum()) for job in jobs
                ]
            rates = rates_of(rule, self.coordinator.version - 1, ages, squares)
            total = sum(
                rate * self._gradients.pop(job) for job, rate in zip(jobs, rates, strict=True)
            )
            # by a number where vectors are: by one of the host, a GPU multiplies with the rounded
            # reciprocal instead
            self.parameters = now - total / self.arithmetic.place(
                np.array(len(jobs), self.problem.dtype)
            )
        for job in jobs:
            self._release(job)
