"""Claims over traced Runs: a predicate whose quantities come from the profiler, and whose repeats are traced Records."""

from __future__ import annotations

import pandas as pd
from pydantic import Field

from multigpu.claims.core import Predicate
from multigpu.claims.records import Row, rows


class TracePredicate(Predicate):
    """As a Predicate, over rows of `analysis.step_traces.trace_table`: selections name fields of a Run, quantities its columns."""

    timed_steps: int = Field(default=20, ge=1)
    protocol: str = "Steps under the profiler, after timed ones without it; step times are those of the latter, device times of the former."


def trace_rows(frame: pd.DataFrame) -> list[Row]:
    """The table of traced Runs as rows that verdicts can read."""
    return rows(frame)
