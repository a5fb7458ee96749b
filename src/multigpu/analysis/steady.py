"""Which points a host cannot have set: steps captured as one CUDA graph, and others whose repeats agree.

An eager step waits for its host, whose speed differs between launches by tens of percent: a ratio of eager points says what a host did
unless its interval is narrow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from multigpu.analysis.metrics import summary
from multigpu.analysis.ways import find_point
from multigpu.analysis.wording import missing, ratio_text
from multigpu.record import Record
from multigpu.same_gpus import needs_only_gpus

WIDTH = 0.1
"""The most that a steady ratio's interval reaches to either side, as a share of the ratio."""
GRAPHS = ("captured", "compiled_captured")
"""Forms of execution in which the host launches a step as one graph."""


def of_one_gpu(records: Iterable[Record]) -> list[Record]:
    """Measured steps of one GPU that no host and no link can set the pace of: whole steps as one CUDA graph, nothing of a host in them."""
    return [
        record
        for record in records
        if record.status == "ok"
        and record.measurement
        and record.run.devices == 1
        and record.run.execution == "captured"
        and record.run.energy_window_s is None
        and needs_only_gpus(record.run)
    ]


def narrow(table: pd.DataFrame, name: str) -> pd.Series:
    """Which rows' ratio of this name has an interval of at most WIDTH to either side."""
    ends = [(table[f"{name}_{end}"] / table[name] - 1).abs() for end in ("low", "high")]
    return (ends[0] <= WIDTH) & (ends[1] <= WIDTH)


def steady(table: pd.DataFrame, name: str) -> pd.Series:
    """Which rows' ratio of this name no host set: of captured steps, or `narrow`."""
    return table["execution"].isin(GRAPHS) | narrow(table, name)


def exact_first(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The rows with an interval of this ratio before those measured once, else as they are."""
    return table.sort_values(f"{name}_low", key=lambda lows: lows.isna(), kind="stable")


def once_text(row: Any, name: str) -> str:
    """What follows a ratio of this name with a side that was measured once: ", once"; "" for one with an interval."""
    return ", once" if missing(row[f"{name}_low"]) else ""


def eager_ahead(frame: pd.DataFrame, row: Any) -> str:
    """Of a captured point that was measured once and is slower than its eager twin, that it is: "; the eager step was 1.07 times as fast";
    "" for any other.
    """
    twin = find_point(summary(frame), row, execution="eager") if row["execution"] == "captured" and row["n"] == 1 else None
    if twin is None or twin["rate"] <= row["rate"]:
        return ""
    return f"; the eager step was {ratio_text(twin['rate'] / row['rate'])} as fast"
