"""Claims over TrainingRecords: a predicate whose repeats are seeds and whose count is the multiple of a reference batch."""

from __future__ import annotations

from typing import Any, ClassVar

import pandas as pd
from pydantic import Field

from multigpu.claims.core import Predicate, Selection, Value
from multigpu.claims.records import Row, rows

FIELDS = ("workload", "model", "placement", "inputs", "device_type", "precision", "execution", "rate_scaling", "schedule", "adjusted")
"""Columns of `training_frame` that a claim may select."""


class TrainingPredicate(Predicate):
    """As a Predicate, over rows of `training_frame`: selections name FIELDS, quantities its columns.

    What counts as "devices" is the joined batch over the reference batch: it is the batch, not the GPUs, that a rate answers to. A seed
    is a repeat and, since it starts anew, a launch.
    """

    counted: ClassVar[tuple[str, str]] = ("times the batch", "times the batch")

    frameworks: tuple[Any, ...] = ("torch",)
    machines: Any = "any"
    warmup_steps: int = Field(default=0, ge=0)
    timed_steps: int = Field(default=1, ge=1)
    protocol: str = "Trained to the end of an equal number of epochs, scored on held-out images; a repeat is a seed."


def where_training(**fields: Value | tuple[Value, ...]) -> Selection:
    """As `where`, of FIELDS.

    Raises:
        ValueError: there is no such field.
    """
    unknown = sorted(set(fields) - set(FIELDS))
    if unknown:
        raise ValueError(f"a row of training has no field {', '.join(unknown)}: choose among {', '.join(FIELDS)}")
    return tuple((name, value if isinstance(value, tuple) else (value,)) for name, value in sorted(fields.items()))


def training_rows(frame: pd.DataFrame) -> list[Row]:
    """The frame of TrainingRecords as rows that verdicts can read."""
    if frame.empty:
        return []
    # epochs as planned, so that one that diverged and ended early still has its place; seeds are repeats and name nothing
    own = ["batch_size", "scaling", "seed", "steps", "samples", "steps_per_epoch", "step_time_s", "peak_rate", "layout", "devices"]
    found = frame.drop(columns=own).assign(
        devices=frame["multiple"], timing_version=frame["training_version"], warmup_steps=0, timed_steps=frame["steps"].fillna(1)
    )
    return rows(found)
