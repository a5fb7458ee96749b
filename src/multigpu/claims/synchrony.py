"""Claims over SynchronyRecords: a predicate whose repeats are seeds and whose device count is the number of workers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import pandas as pd
from pydantic import Field

from multigpu.claims.core import Predicate, Selection, Value
from multigpu.claims.records import SYNCHRONY_FIELDS, Row, rows


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


def where_synchrony(**fields: Value | tuple[Value, ...]) -> Selection:
    """As `where`, of SYNCHRONY_FIELDS.

    Raises:
        ValueError: there is no such field.
    """
    unknown = sorted(set(fields) - set(SYNCHRONY_FIELDS))
    if unknown:
        raise ValueError(f"a row of synchrony has no field {', '.join(unknown)}: choose among {', '.join(SYNCHRONY_FIELDS)}")
    return tuple((name, value if isinstance(value, tuple) else (value,)) for name, value in sorted(fields.items()))


def synchrony_rows(frame: pd.DataFrame) -> list[Row]:
    """The frame of SynchronyRecords as rows that verdicts can read."""
    if frame.empty:
        return []
    fixed: dict[str, Any] = {"framework": "numpy", "device_type": "worker", "launch_id": "virtual", "warmup_steps": 0, "timed_steps": 1}
    # equal work is a condition where it was the budget
    trained = frame["applied"].where(frame["problem"].notna() & frame["budget_s"].isna())
    # an AveragingRecord has two rows; a row's key is its Record's again in the end
    apart = frame["key"] + "|" + frame["protocol"]
    found = rows(frame.assign(devices=frame["workers"], trained=trained, key=apart, **fixed))
    return [{**row, "key": row["key"].partition("|")[0]} for row in found]
