"""The six protocols of document 002 as one state machine: no clock, no gradients, no framework.

    ================  =====================  =======================================
    ====================== protocol          an update waits for    after its gradient arrived, a
    worker     the others' batches ================  =====================
    =======================================  ====================== sync              P workers
    waits for the update                     (none are left) k_sync            K workers
    waits for the update                     are cancelled k_batch_sync      K batches
    goes on at once, on the current version  are cancelled async             1 worker
    waits for the update (its own)           go on k_async           K workers              waits
    for the update                     go on k_batch_async     K batches              goes on at
    once, on the current version  go on ================  =====================
    =======================================  ======================

A worker whose gradient completes an update gets the version after that update. The names and the
table follow S. Dutta, G. Joshi, S. Ghosh, P. Dube, P. Nagpurkar, "Slow and Stale Gradients Can Win
the Race" (AISTATS 2018), which 002 summarises.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

ProtocolName = Literal["sync", "k_sync", "k_batch_sync", "async", "k_async", "k_batch_async"]
PROTOCOLS: tuple[ProtocolName, ...] = get_args(ProtocolName)
# whose updates cancel what is still being computed
CANCELS = frozenset({"sync", "k_sync", "k_batch_sync"})
# which count batches, whoever computed them, and not workers
BATCHES = frozenset({"k_batch_sync", "k_batch_async"})


class GradientTask(NamedTuple):
    """A worker's `ticket`-th batch (from 0), computed on the parameters after `version` updates."""

    worker: int
    ticket: int
    version: int


class Decision(NamedTuple):
    """The consequences of one event.

    update: gradients that make up one update, in order of arrival; empty if there is no update.
    cancelled: batches that are given up; started: batches to compute now, on the version named.
    late: the gradient that arrived had been cancelled, and is dropped.
    """

    update: tuple[GradientTask, ...] = ()
    cancelled: tuple[GradientTask, ...] = ()
    started: tuple[GradientTask, ...] = ()
    late: bool = False


class CannotContinue(RuntimeError):
    """Too few workers are left for another update."""


def check_gradients(protocol: ProtocolName, workers: int, gradients: int | None) -> int:
    """K: P for sync and 1 for async, where it may be left out. ValueError: it suits not both."""
    fixed = {"sync": workers, "async": 1}.get(protocol)
    if fixed is not None:
        if gradients not in (None, fixed):
            raise ValueError(
                f"{protocol} with {workers} workers takes {fixed} gradients an update, not"
                f" {gradients}: leave gradients out"
            )
        return fixed
    if gradients is None:
        raise ValueError(f"{protocol} needs gradients, the number K that one update waits for")
    if gradients < 1 or (protocol not in BATCHES and gradients > workers):
        if protocol in BATCHES:
            most = "at least 1"
        else:
            most = f"1 to {workers}, one of each of {workers} workers"
        raise ValueError(
            f"{protocol} cannot wait for {gradients} gradients: gradients must be {most}"
        )
    return gradients


class Coordinator:
    """The server's decisions: events go in (a gradient arrived, a worker left), a Decision comes
    out.

    Every batch is always in one account: `started == applied + len(waiting) + len(running) +
        cancelled + lost`.

    tickets: by worker, of its next batch. running: batches being computed, by worker. waiting:
        gradients that arrived for the next update.
    Raises ValueError as `check_gradients`, or where an event names a worker or ticket that cannot
    be.
    """

    def __init__(self, protocol: ProtocolName, workers: int, gradients: int | None = None) -> None:
        self.protocol = protocol
        self.gradients = check_gradients(protocol, workers, gradients)
        self.cancels = protocol in CANCELS
        self.batches = protocol in BATCHES
        self.version = 0
        self.tickets = [0] * workers
        self.alive = set(range(workers))
        self.running: dict[int, GradientTask] = {}
        self.waiting: list[GradientTask] = []
        self.started = self.applied = self.cancelled = self.lost = self.late = 0

    def begin(self) -> Decision:
        """All workers start."""
        return Decision(started=self._start(self.alive))

    def arrived(self, worker: int, ticket: int) -> Decision:
        job = self.running.get(worker)
        if job is None or job.ticket != ticket:
            if not 0 <= worker < len(self.tickets) or not 0 <= ticket < self.tickets[worker]:
                raise ValueError(f"worker {worker} never started a batch with ticket {ticket}")
            self.late += 1
            return Decision(late=True)
        del self.running[worker]
        self.waiting.append(job)
        if len(self.waiting) < self.gradients:
            return Decision(started=self._start((worker,)) if self.batches else ())
        update, self.waiting = tuple(self.waiting), []
        self.version += 1
        self.applied += len(update)
        if not self.cancels:
            return Decision(
                update,
                (),
                self._start([worker] if self.batches else [job.worker for job in update]),
            )
        cancelled = tuple(self.running.values())
        self.cancelled += len(cancelled)
        self.running.clear()
        return Decision(update, cancelled, self._start(self.alive))

    def left(self, worker: int) -> GradientTask | None:
        """End a worker: return the batch that is lost with it; gradients that had arrived stay."""
        self.alive.discard(worker)
        job = self.running.pop(worker, None)
        self.lost += job is not None
        return job

    def check_possible(self) -> None:
        """Raise CannotContinue where the workers that are left cannot complete another update."""
        if self.batches:
            enough = bool(self.alive)
        else:
            enough = len(self.waiting) + len(self.running) >= self.gradients
        if not enough:
            needed = "a worker" if self.batches else f"gradients of {self.gradients} workers"
            left = f"{len(self.alive)} of {len(self.tickets)} workers are left"
            raise CannotContinue(
                f"{self.protocol} needs {needed} for an update, and {left}: start it again"
            )

    def _start(self, workers: Iterable[int]) -> tuple[GradientTask, ...]:
        jobs = tuple(
            GradientTask(worker, self.tickets[worker], self.version)
            for worker in sorted(self.alive.intersection(workers))
        )
        for job in jobs:
            self.tickets[job.worker] += 1
            self.running[job.worker] = job
        self.started += len(jobs)
        return jobs
