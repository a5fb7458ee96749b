"""Experiments: frozen, validated when they are built, and found again by their key; here those of
the six protocols.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

from multigpu.analysis.laws import Seconds
from multigpu.records.base import key_of
from multigpu.spec.schema import Strict
from multigpu.workloads import find_model
from multigpu_study.synchrony.laws import Law, StepTimes
from multigpu_study.synchrony.problems import (
    Count,
    Description,
    DigitsProblem,
    LinearRegression,
    PlantedTeacher,
    Problem,
    RareFeatures,
)
from multigpu_study.synchrony.protocol import ProtocolName, check_gradients

# raised when what a figure means changes, so that old and new never share a table
SYNCHRONY_VERSION = 1
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# folder of the virtual clock's Records: its seconds do not depend on the machine
VIRTUAL = "virtual"


class TrainedModel(Description):
    """A model of a workload, its loss the mean over images or target words.

    cnn: images of a class's grating under noise (`model_problem.gratings`); nmt: sentences of the
        committed corpus with at most `longest` words a side (`model_problem.sentences`). A row is
        an image or a pair.
    device: "cuda" gives worker w the GPU of number w modulo the GPUs there are, and the server's
        evaluations the first one.
    precision: "bf16" computes under autocast; parameters and gradients travel as float32.
    Batch norm takes the statistics of the rows it is given, in training and in evaluation, and
    keeps no running ones.
    """

    kind: Literal["model"] = "model"
    workload: Literal["cnn", "nmt"]
    model: str
    rows: Count = 2048
    test_rows: Count = 512
    longest: Count = 12
    device: Literal["cpu", "cuda"] = "cpu"
    precision: Literal["fp32", "bf16"] = "fp32"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        find_model(self.workload, self.model)
        return self

    def build(self) -> Problem:
        from multigpu_study.synchrony.model_problem import ModelProblem  # and PyTorch

        return ModelProblem(self)


class ConstantRate(Strict):
    """The same rate for every gradient, however old. An update is w <- w - (1/K) sum_i rate_i g_i
    over its K gradients.
    """

    kind: Literal["constant"] = "constant"
    rate: Positive


class WarmUpRate(Strict):
    """The rate rises evenly over the first `updates` updates, from `start` to `rate`, and stays
    there; the age of gradients is ignored.
    Source: P. Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (2017),
        section 2.2, gradual warm-up.
    """

    kind: Literal["warm_up"] = "warm_up"
    rate: Positive
    start: Positive
    updates: Count


class StalenessRate(Strict):
    """rate / staleness, which never exceeds `rate` (a fresh gradient, staleness 0, counts as 1).

    per: "update" divides by the average staleness of the update's gradients (002's alpha_0 /
        <sigma>), "gradient" every gradient by its own (Zhang et al. 2016). With K = 1 they are the
        same.
    """

    kind: Literal["staleness"] = "staleness"
    rate: Positive
    per: Literal["update", "gradient"] = "update"


class BoundedRate(Strict):
    """min(c / ||w_j - w_tau||^2, maximum), w_j the parameters before the update, w_tau those of the
    gradient: 002; Dutta et al. 2018.
    """

    kind: Literal["bounded"] = "bounded"
    c: Positive
    maximum: Positive


RateRule = ConstantRate | StalenessRate | BoundedRate | WarmUpRate


def rates_of(
    rule: RateRule, update: int, ages: Sequence[int], squares: Sequence[float]
) -> list[float]:
    """Of the gradients of update number `update` (from 0), by their staleness and, if
    `BoundedRate`, their ||w_j - w_tau||^2.
    """
    match rule:
        case BoundedRate():
            return [
                rule.maximum if rule.c >= rule.maximum * square else rule.c / square
                for square in squares
            ]
        case StalenessRate(per="gradient"):
            return [rule.rate / max(1, age) for age in ages]
        case StalenessRate():
            return [rule.rate / max(1.0, sum(ages) / len(ages))] * len(ages)
        case WarmUpRate():
            factor = (
                rule.start + (rule.rate - rule.start) * min(1.0, update / rule.updates)
            ) / rule.rate
            return [factor * rule.rate] * len(ages)
    return [rule.rate] * len(ages)


ProblemDescription = Annotated[
    LinearRegression | RareFeatures | DigitsProblem | PlantedTeacher | TrainedModel,
    Field(discriminator="kind"),
]
Engine = Literal["processes", "ray"]


class ExperimentBase(Strict):
    """An experiment of any kind; `benchmarks/synchrony` runs it. folder: of its
    Records, if no machine matters.
    """

    folder: ClassVar[str]
    problem: ProblemDescription | None

    def place_on(self, machine: str) -> str:
        """The folder of its Record, if it is made on this machine."""
        return self.folder

    def key_on(self, machine: str, repeat: int = 0) -> str:
        return key_of(
            self.folder, json.dumps(self.model_dump(mode="json"), sort_keys=True), SYNCHRONY_VERSION
        )

    @property
    def label(self) -> str:
        """One line that tells it from its neighbours in a grid."""
        raise NotImplementedError

    def open(self) -> Problem | None:
        """The problem that it trains, built; None for a study of time alone."""
        return self.problem.build() if self.problem else None


class ProtocolExperiment(ExperimentBase):
    """Protocol x P x K x law x problem x rate rule x seed x clock x engine.

    gradients: K, left out for sync (P) and async (1).
    law: of the time of one batch of one worker. On the real clock a worker waits until that time
        has passed.
    problem, rate: both or neither; neither for studies of runtime and staleness alone.
    slowdown: by worker, a factor on its times (a straggler has more than 1).
    delays_s: by worker, seconds added to every one of its batches, whatever the law and the
        computation take.
    server_s: seconds that the server is busy with one gradient (virtual clock; a real server takes
        what it takes).
    preemptive: whether a cancelled batch ends at once; else its worker first finishes computing it
        (virtual clock; on the real one an injected wait ends at once and a computation does not).
    updates, time_s: the budget; what is reached first ends the run. outages: none; Records have it.
    evaluations: points of the curve of loss against time, spread evenly over the budget (the start
        comes in addition).
    engine: of the real clock: processes of this machine that share memory (`real`), or Ray actors
        (`benchmarks/over_ray.py`).
    server_device: where a real server holds parameters, merges and updates: "host" in NumPy's
        arrays, "cuda" in tensors on GPU 0, "cpu" in tensors too, by the same code as "cuda".
        Workers' devices are the problem's.
    """

    folder = VIRTUAL

    protocol: ProtocolName
    workers: Count
    gradients: int | None = None
    law: Law
    problem: ProblemDescription | None = None
    rate: Annotated[RateRule, Field(discriminator="kind")] | None = None
    slowdown: tuple[Positive, ...] | None = None
    delays_s: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] | None = None
    server_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    preemptive: bool = True
    outages: tuple[()] = ()
    updates: Count | None = None
    time_s: Seconds | None = None
    evaluations: Count = 50
    seed: Annotated[int, Field(ge=0)] = 0
    clock: Literal["virtual", "real"] = "virtual"
    engine: Engine = "processes"
    server_device: Literal["host", "cpu", "cuda"] = "host"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_gradients(self.protocol, self.workers, self.gradients)
        if (self.problem is None) != (self.rate is None):
            raise ValueError("a problem needs a rate, and a rate a problem: give both or neither")
        if self.updates is None and self.time_s is None:
            raise ValueError("an experiment needs a budget: give updates, time_s or both")
        if self.slowdown is not None and len(self.slowdown) != self.workers:
            raise ValueError(
                f"slowdown names {len(self.slowdown)} workers, not {self.workers}: give one factor"
                " a worker"
            )
        if self.delays_s is not None and len(self.delays_s) != self.workers:
            raise ValueError(
                f"delays_s names {len(self.delays_s)} workers, not {self.workers}: give one a"
                " worker, 0 for none"
            )
        if self.law.kind == "computed" and (self.clock != "real" or self.problem is None):
            raise ValueError(
                "law 'computed' is the time that a gradient takes: it needs clock 'real' and a"
                " problem"
            )
        if (self.server_s or not self.preemptive) and self.clock == "real":
            raise ValueError(
                "server_s and preemptive belong to the virtual clock: real servers and computations"
                " take what they take"
            )
        if self.engine == "ray" and self.clock != "real":
            raise ValueError(
                "engine 'ray' belongs to the real clock: choose clock 'real', or leave engine out"
            )
        if self.server_device != "host" and (
            self.clock != "real" or self.engine != "processes" or self.problem is None
        ):
            raise ValueError(
                f"server_device {self.server_device!r} needs clock 'real', engine 'processes' and a"
                " problem: or leave it out"
            )
        return self

    @property
    def gradients_per_update(self) -> int:
        return check_gradients(self.protocol, self.workers, self.gradients)

    @property
    def digest(self) -> str:
        """A hash of the fields that are not at their default, so that new ones change no key."""
        return hashlib.sha256(json.dumps(_told(self), sort_keys=True).encode()).hexdigest()[:16]

    def place_on(self, machine: str) -> str:
        return self.folder if self.clock == "virtual" else machine

    def key_on(self, machine: str, repeat: int = 0) -> str:
        return key_of(self.digest, repeat, self.place_on(machine), SYNCHRONY_VERSION)

    @property
    def label(self) -> str:
        problem = (
            getattr(self.problem, "model", self.problem.kind) if self.problem else "no gradients"
        )
        where = "over Ray" if self.engine == "ray" else self.clock
        server = f", server on {self.server_device}" if self.server_device != "host" else ""
        late = f" straggler {max(self.delays_s):g} s" if self.delays_s else ""
        parts = (
            f"{self.protocol} P={self.workers} K={self.gradients_per_update} {self.law.kind}"
            f" {problem}"
        )
        return f"{parts} {where}{server}{late} seed {self.seed}"

    @property
    def gpus(self) -> int:
        """That it needs: one a worker, one of them for a server on a GPU."""
        if getattr(self.problem, "device", "cpu") == "cuda":
            return self.workers
        return int(self.server_device == "cuda")

    def times_of(self, worker: int) -> StepTimes:
        return StepTimes(
            self.law, self.seed, worker, self.slowdown[worker] if self.slowdown else 1.0
        )

    def delay_of_s(self, worker: int) -> float:
        return self.delays_s[worker] if self.delays_s else 0.0


def _told(value: Any) -> Any:
    """Fields that differ from their default, and `kind`, which may be all that differs."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {
            n: _told(v)
            for n, v in value
            if n == "kind" or fields[n].is_required() or v != fields[n].get_default()
        }
    return [_told(part) for part in value] if isinstance(value, tuple) else value
