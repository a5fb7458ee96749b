"""Simulate Downpour SGD on a clock of its own: replicas that pull, push, come and go."""

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from multigpu_study.synchrony.downpour import Downpour, DownpourRecord
from multigpu_study.synchrony.laws import StepTimes
from multigpu_study.synchrony.problems import Problem, RareFeatures
from multigpu_study.synchrony.record import histogram, record_fields
from multigpu_study.synchrony.server import CurvePoint


def simulate_downpour(experiment: Downpour, problem: Problem) -> tuple[DownpourRecord, np.ndarray]:
    """The Record of a run, and the parameters at its end. With fetch and push every batch, no
    latency and "sgd" it is async.
    """
    with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
        simulation = _Simulation(experiment, problem)
        return simulation.run(), simulation.parameters


@dataclass
class _Replica:
    parameters: np.ndarray
    versions: list[int]  # by shard, of its part of the parameters
    accrued: np.ndarray
    oldest: list[int]  # by shard, the version under the first gradient accrued
    count: int = 0  # gradients accrued
    batch: int = 0  # the next one's number
    life: int = 0  # messages and batches of an earlier life are void
    missing: set[int] = field(default_factory=set)  # shards to hear from before it can start


# at one instant messages go first, so that a push without latency is in the fetch that follows it
LEAVE, JOIN, PUSH, READ, LAND, BEGIN, DONE = range(7)


class _Simulation:
    def __init__(self, experiment: Downpour, problem: Problem) -> None:
        self.experiment, self.problem = experiment, problem
        if experiment.shards > problem.size:
            raise ValueError(
                f"{problem.size} parameters cannot be split into {experiment.shards} shards"
            )
        self.parameters = problem.initial(experiment.seed)
        bounds = [
            problem.size * shard // experiment.shards for shard in range(experiment.shards + 1)
        ]
        self.parts = [slice(*pair) for pair in pairwise(bounds)]
        self.squares = np.zeros(problem.size)
        self.updates = [0] * experiment.shards
        self.staleness: list[Counter[int]] = [Counter() for _ in self.parts]
        self.spread: Counter[int] = Counter()
        self.times = [
            StepTimes(experiment.law, experiment.seed, replica)
            for replica in range(experiment.replicas)
        ]
        # a stream of its own beside the workers' times
        self.latencies = np.random.default_rng((experiment.seed, 4, 0))
        start, versions = self.parameters, self.updates
        self.replicas = [
            _Replica(start.copy(), list(versions), np.zeros(problem.size), list(versions))
            for _ in self.times
        ]
        # time, kind, number, replica, life, what travels
        self.heap: list[tuple[float, int, int, int, int, Any]] = []
        self.number = self.computed = self.lost = 0
        self.applied = self.travelling = 0  # gradients x shards
        self.points: list[tuple[float, int, int, np.ndarray]] = []

    def run(self) -> DownpourRecord:
        e = self.experiment
        for outage in e.outages:
            self._plan(outage.at_s, LEAVE, outage.worker)
            if outage.until_s is not None:
                self._plan(outage.until_s, JOIN, outage.worker)
        for number in range(e.replicas):
            self._plan(0.0, BEGIN, number)
        messages = (self._push, self._read, self._land)
        handlers = (self._leave, self._join, *messages, self._begin, self._done)
        now_s, notes = 0.0, []
        self._look(now_s)
        while e.batches is None or self.computed < e.batches:
            if not self.heap:
                notes.append("no replica is left: shards keep what they have")
                break
            time_s, kind, _, number, life, load = heapq.heappop(self.heap)
            if e.time_s is not None and time_s > e.time_s:
                now_s = e.time_s
                break
            now_s = time_s
            # a push that is on its way outlives its replica; everything else of an earlier life is
            # void
            if kind in (LEAVE, JOIN, PUSH) or life == self.replicas[number].life:
                handlers[kind](number, load, now_s)
            self._look(now_s)
        self._look(now_s, last=True)
        by_feature: dict[str, Any] = {}
        if isinstance(e.problem, RareFeatures):
            roots = np.concatenate([self._root(part) for part in self.parts]).tolist()
            by_feature = {
                "parameters": self.parameters.tolist(),
                "rates": [e.rate / root if root else math.nan for root in roots],
            }
        return DownpourRecord(
            curve=[
                CurvePoint(t, u, g, self.problem.loss(w), self.problem.error(w))
                for t, u, g, w in self.points
            ],
            batches=self.computed,
            applied=self.applied / e.shards,
            travelling=self.travelling / e.shards,
            accrued=sum(replica.count for replica in self.replicas),
            lost=self.lost,
            shard_updates=self.updates,
            staleness=[histogram(counter) for counter in self.staleness],
            spread=histogram(self.spread),
            end_s=now_s,
            notes=notes,
            **by_feature,
            **record_fields(e),
        )

    def _plan(self, time_s: float, kind: int, number: int, load: Any = None) -> None:
        self.number += 1
        heapq.heappush(
            self.heap, (time_s, kind, self.number, number, self.replicas[number].life, load)
        )

    def _send(self, now_s: float, kind: int, number: int, load: Any) -> None:
        law = self.experiment.latency
        self._plan(
            now_s + (float(law.sample(self.latencies, 1)[0]) if law else 0.0), kind, number, load
        )

    def _look(self, now_s: float, last: bool = False) -> None:
        """A point of the curve, where the next part of the budget is spent."""
        e = self.experiment
        spent = max(self.computed / (e.batches or math.inf), now_s / (e.time_s or math.inf))
        if last or spent >= len(self.points) / e.evaluations - 1e-9:
            if last and self.points and self.points[-1][0] == now_s:
                self.points.pop()
            updates, applied = sum(self.updates) // e.shards, self.applied // e.shards
            self.points.append((now_s, updates, applied, self.parameters.copy()))

    def _begin(self, number: int, _: Any, now_s: float) -> None:
        replica = self.replicas[number]
        gradient = self.problem.gradient(replica.parameters, number, replica.batch)
        if replica.count == 0:
            replica.oldest = list(replica.versions)
        self.spread[max(replica.versions) - min(replica.versions)] += 1
        self._plan(now_s + self.times[number].time_s(replica.batch), DONE, number, gradient)
        replica.batch += 1

    def _done(self, number: int, gradient: np.ndarray, now_s: float) -> None:
        replica, e = self.replicas[number], self.experiment
        replica.accrued += gradient
        replica.count += 1
        self.computed += 1
        if replica.batch % e.push_every == 0:
            for shard, part in enumerate(self.parts):
                load = (shard, replica.accrued[part].copy(), replica.oldest[shard], replica.count)
                self.travelling += replica.count
                self._send(now_s, PUSH, number, load)
            replica.accrued[:] = 0
            replica.count = 0
        if replica.batch % e.fetch_every == 0:
            self._fetch(number, now_s)
        self._plan(now_s, BEGIN, number)

    def _fetch(self, number: int, now_s: float) -> None:
        for shard in range(self.experiment.shards):
            self._send(now_s, READ, number, shard)

    def _push(self, _: int, load: Any, now_s: float) -> None:
        shard, gradient, version, count = load
        part = self.parts[shard]
        self.squares[part] += gradient**2
        root = self._root(part)  # 0 of an element that never had a gradient, and has none now
        self.parameters[part] -= self.experiment.rate * np.divide(
            gradient, root, out=np.zeros_like(gradient), where=root > 0
        )
        self.staleness[shard][self.updates[shard] - version] += 1
        self.updates[shard] += 1
        self.travelling -= count
        self.applied += count

    def _root(self, part: slice) -> np.ndarray:
        """Return the divisor of these elements' gradients."""
        squares, rule = self.squares[part], self.experiment.rule
        return np.sqrt(
            {
                "adagrad": squares,
                "adagrad_norm": np.full_like(squares, squares.mean()),
                "sgd": np.ones_like(squares),
            }[rule]
        )

    def _read(self, number: int, shard: int, now_s: float) -> None:
        self._send(
            now_s,
            LAND,
            number,
            (shard, self.parameters[self.parts[shard]].copy(), self.updates[shard]),
        )

    def _land(self, number: int, load: Any, now_s: float) -> None:
        shard, values, version = load
        replica = self.replicas[number]
        if version >= replica.versions[shard]:  # messages may overtake each other
            replica.parameters[self.parts[shard]] = values
            replica.versions[shard] = version
        if replica.missing:
            replica.missing.discard(shard)
            if not replica.missing:
                self._plan(now_s, BEGIN, number)

    def _leave(self, number: int, _: Any, now_s: float) -> None:
        replica = self.replicas[number]
        replica.life += 1
        self.lost += replica.count
        replica.accrued[:] = 0
        replica.count = 0

    def _join(self, number: int, _: Any, now_s: float) -> None:
        self.replicas[number].missing = set(range(self.experiment.shards))
        self._fetch(number, now_s)
