"""Predicates over other Records than plain Runs, what their selections may name, and how their tables become rows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import pandas as pd
from pydantic import Field

from multigpu.claims.core import Predicate
from multigpu.claims.pairs import NONE, SYNCHRONY_FIELDS, Rows, rows
from multigpu.collectives.run import CollectiveRun
from multigpu.run import Run

TRAINING_FIELDS = (
    "workload",
    "model",
    "placement",
    "inputs",
    "device_type",
    "precision",
    "execution",
    "rate_scaling",
    "schedule",
    "adjusted",
)
"""Columns of `training_frame` that a claim may select."""


class CollectivePredicate(Predicate):
    """As a Predicate, over all-reduces between hosts, one process on each: rows of `analysis.all_reduce.hosts_frame`.

    Selections name fields of a CollectiveRun, quantities columns of that frame; a call counts as a step. Libraries' and written-out
    all-reduces are all started from PyTorch. What a document says of computers on a network is decided by hosts with a link each,
    whatever processors they have.
    """

    counted: ClassVar[tuple[str, str]] = ("host", "hosts")
    frameworks: tuple[Literal["torch", "tensorflow"], ...] = ("torch",)
    machines: Literal["gpu", "any"] = "any"
    warmup_steps: int = Field(default=1, ge=0)
    timed_steps: int = Field(default=3, ge=1)
    protocol: str = "Time of one call of the slowest process by the host's clock; a Record's figure is the median of its samples."


class SynchronyPredicate(Predicate):
    """As a Predicate, over rows of `synchrony_frame`: selections name SYNCHRONY_FIELDS, quantities its columns.

    A seed is a repeat. Launches and warm-up have no meaning on a virtual clock.
    """

    counted: ClassVar[tuple[str, str]] = ("worker", "workers")

    frameworks: tuple[Literal["torch", "tensorflow", "numpy"], ...] = ("numpy",)
    machines: Literal["gpu", "any"] = "any"
    min_launches: int = Field(default=1, ge=1)
    warmup_steps: int = Field(default=0, ge=0)
    timed_steps: int = Field(default=1, ge=1)
    protocol: str = "Real gradients in NumPy on a virtual clock; the server and the network take no time; a repeat is a seed."


class TrainingPredicate(Predicate):
    """As a Predicate, over rows of `training_frame`: selections name TRAINING_FIELDS, quantities its columns.

    What counts as "devices" is the joined batch over the reference batch: it is the batch, not the GPUs, that a rate answers to. A seed
    is a repeat and, since it starts anew, a launch.
    """

    counted: ClassVar[tuple[str, str]] = ("times the batch", "times the batch")

    frameworks: tuple[Any, ...] = ("torch",)
    machines: Any = "any"
    warmup_steps: int = Field(default=0, ge=0)
    timed_steps: int = Field(default=1, ge=1)
    protocol: str = "Trained to the end of an equal number of epochs, scored on held-out images; a repeat is a seed."


class TracePredicate(Predicate):
    """As a Predicate, over rows of `analysis.step_traces.trace_table`: selections name fields of a Run, quantities its columns."""

    timed_steps: int = Field(default=20, ge=1)
    protocol: str = "Steps under the profiler, after timed ones without it; step times are those of the latter, device times of the former."


def collective_rows(frame: pd.DataFrame) -> Rows:
    """The frame of CollectiveRecords as rows of the same kind: calls stand for steps, and PyTorch starts them all."""
    if frame.empty:
        return NONE
    return rows(frame.assign(framework="torch", warmup_steps=frame["warmup_calls"], timed_steps=frame["calls"] * frame["samples"]))


def synchrony_rows(frame: pd.DataFrame) -> Rows:
    """The frame of SynchronyRecords as rows that verdicts can read."""
    if frame.empty:
        return NONE
    fixed: dict[str, Any] = {"framework": "numpy", "device_type": "worker", "launch_id": "virtual", "warmup_steps": 0, "timed_steps": 1}
    # equal work is a condition where it was the budget
    trained = frame["applied"].where(frame["problem"].notna() & frame["budget_s"].isna())
    # an AveragingRecord has two rows; a row's key is its Record's again in the end
    apart = frame["key"] + "|" + frame["protocol"]
    rate = 1 / frame["gradient_time_s"]
    found = rows(frame.assign(devices=frame["workers"], trained=trained, key=apart, gradients_per_s=rate, **fixed))
    return replace(found, frame=found.frame.assign(key=found.frame["key"].str.partition("|")[0]))


def training_rows(frame: pd.DataFrame) -> Rows:
    """The frame of TrainingRecords as rows that verdicts can read."""
    if frame.empty:
        return NONE
    # epochs as planned, so that one that diverged and ended early still has its place; seeds are repeats and name nothing
    own = ["batch_size", "scaling", "seed", "steps", "samples", "steps_per_epoch", "step_time_s", "peak_rate", "layout", "devices"]
    found = frame.assign(repeat=frame["seed"]).drop(columns=own)
    steps = frame["steps"].fillna(1)
    return rows(found.assign(devices=frame["multiple"], timing_version=frame["training_version"], warmup_steps=0, timed_steps=steps))


class Kind(NamedTuple):
    """predicate: its class. known: the fields that a selection may name. what: of what these are. read: makes rows of a table."""

    predicate: type[Predicate]
    known: Collection[str]
    what: str
    read: Callable[[pd.DataFrame], Rows] = rows


KINDS = {
    "runs": Kind(Predicate, tuple(Run.model_fields), "a Run"),
    "traces": Kind(TracePredicate, tuple(Run.model_fields), "a Run"),
    "hosts": Kind(CollectivePredicate, tuple(CollectiveRun.model_fields), "a CollectiveRun", collective_rows),
    "synchrony": Kind(SynchronyPredicate, SYNCHRONY_FIELDS, "a row of synchrony", synchrony_rows),
    "training": Kind(TrainingPredicate, TRAINING_FIELDS, "a row of training", training_rows),
}
"""By the name that a claim's data gives them."""
