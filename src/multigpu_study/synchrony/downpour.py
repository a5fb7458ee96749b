"""Downpour SGD on a virtual clock: a sharded server, Adagrad in each shard, replicas that fetch and
push on their own.

A replica never waits. Before every `fetch_every`-th batch it asks all shards for their parameters,
after every `push_every`-th it sends each its part of the gradients added up since; both travel
while it goes on computing. So the vector it computes on may mix versions.
Source: J. Dean et al., "Large Scale Distributed Deep Networks" (NIPS 2012), section 4.1 and
    algorithm 1.1 of its appendix.
"""

import math
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from multigpu.analysis.laws import Seconds
from multigpu_study.synchrony.experiment import ExperimentBase, ProblemDescription
from multigpu_study.synchrony.laws import Law, Outage
from multigpu_study.synchrony.problems import Count
from multigpu_study.synchrony.record import Histogram, Measured
from multigpu_study.synchrony.server import CurvePoint


class Downpour(ExperimentBase):
    """law: of one batch; latency: of one message to or from one shard (None: none), drawn for each.

    rule: of every shard: "adagrad" divides `rate` by the root of the squares added up so far,
        element by element; "adagrad_norm" by that of their mean over the shard's elements, so that
        all have one rate; "sgd" does not.
    outages: replicas that end, with the batch and the gradients not yet pushed, and return: they
        fetch everything, then start.
    batches, time_s: the budget, over all replicas; what is reached first ends the run. local_rate:
        none; Records have it.
    """

    folder = "downpour"

    replicas: Count
    shards: Count
    fetch_every: Count = 1
    push_every: Count = 1
    law: Law
    latency: Law | None = None
    problem: ProblemDescription
    rule: Literal["adagrad", "adagrad_norm", "sgd"] = "adagrad"
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    local_rate: Annotated[float, Field(ge=0, le=0)] = 0.0
    outages: tuple[Outage, ...] = ()
    batches: Count | None = None
    time_s: Seconds | None = None
    evaluations: Count = 50
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.batches is None and self.time_s is None:
            raise ValueError("an experiment needs a budget: give batches, time_s or both")
        free_s: dict[int, float] = {}
        for worker, at_s, until_s in (
            (one.worker, one.at_s, one.until_s)
            for one in sorted(self.outages, key=lambda one: one.at_s)
        ):
            if worker >= self.replicas:
                raise ValueError(
                    f"there is no worker {worker} of {self.replicas}: the last is"
                    f" {self.replicas - 1}"
                )
            if until_s is not None and until_s <= at_s:
                raise ValueError(
                    f"worker {worker} cannot be back at {until_s} s, it leaves at {at_s} s"
                )
            if at_s < free_s.get(worker, 0.0):
                raise ValueError(f"worker {worker} cannot leave at {at_s} s, it is away then")
            free_s[worker] = math.inf if until_s is None else until_s
        return self

    @property
    def label(self) -> str:
        return f"downpour N={self.replicas} {self.rule} every {self.push_every} seed {self.seed}"


class DownpourRecord(Measured[Downpour]):
    """curve: `updates` counts pushes whose part every shard has applied on average (parts applied /
    shards), `gradients` batches in them.

    batches: computed to the end; they were applied, are on their way (`travelling`), not yet pushed
        (`accrued`) or lost with their replica.
    shard_updates: [shards] at the end. staleness: by shard, parts by the shard's updates between
        the fetch that the oldest gradient of the part was computed on and its application, its own
        not counted.
    spread: batches by (most - least updates) of the shards' versions in the vector they were
        computed on.
    parameters, rates: at the end, of RareFeatures alone, by feature; a rate is what a gradient is
        multiplied by (NaN: there was none).
    """

    curve: list[CurvePoint]
    batches: int
    applied: float
    travelling: float
    accrued: int
    lost: int
    shard_updates: list[int]
    staleness: list[Histogram]
    spread: Histogram
    end_s: float
    notes: list[str]
    parameters: list[float] = []
    rates: list[float] = []


def first_time_s(curve: Iterable[CurvePoint], error: float) -> float | None:
    """When the curve first has at most this error; None if it never has."""
    return next(
        (point.time_s for point in curve if point.error is not None and point.error <= error), None
    )
