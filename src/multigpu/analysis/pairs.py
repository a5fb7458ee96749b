"""Two points that differ in one thing: the ratio of their rates with its interval, and what may be said of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from multigpu.analysis.metrics import summary
from multigpu.analysis.ways import find_point, ratio_of
from multigpu.analysis.wording import missing

FASTER, SLOWER, EQUAL, ONCE = "faster", "slower", "not told apart", "measured once"
"""What an interval of a ratio says. One that holds 1 does not say that there is no difference: it tells how large one may be."""

BASE = ("step_time_s", "moved_bytes", "peak_memory_gib", "n", "launches", "keys")
"""What `paired` tells of a counterpart."""


@dataclass(frozen=True)
class Change:
    """What differs between a point and its counterpart.

    own: fields of the points looked at, each with the values allowed (None in them: the field is empty); "*" for any but empty.
    base: the same fields of the counterpart; every other field of the two is equal.
    """

    name: str
    own: Mapping[str, tuple[Any, ...] | str]
    base: Mapping[str, Any]


def chosen(points: pd.DataFrame, fields: Mapping[str, tuple[Any, ...] | str]) -> pd.DataFrame:
    """The points whose fields have these values."""
    kept = pd.Series(True, index=points.index)
    for name, values in fields.items():
        if isinstance(values, str):
            kept &= points[name].notna()
        else:
            known = [value for value in values if value is not None]
            kept &= points[name].isin(known) | (points[name].isna() if None in values else False)
    return points[kept]


def verdict(ratio: float, low: float, high: float) -> str:
    """What an interval says of a ratio: which side of 1 it lies on, or neither; without one, that it was measured once."""
    if missing(ratio):
        return ""
    if missing(low):
        return ONCE
    return FASTER if low > 1 else SLOWER if high < 1 else EQUAL


def paired(frame: pd.DataFrame, change: Change) -> pd.DataFrame:
    """Every measured point of the change that has its counterpart.

    Returns:
        the fields of `summary` for the point; ratio, ratio_low, ratio_high: its rate over its counterpart's; verdict;
        base_step_time_s, base_moved_bytes, base_peak_memory_gib, base_n, base_launches, base_keys: the counterpart's.
    """
    points = summary(frame)
    rows = []
    for _, row in chosen(points, change.own).iterrows():
        base = find_point(points, row, **change.base)
        if base is None or not row["n"]:
            continue
        ratio, (low, high) = ratio_of(frame, row, base)
        rows.append(
            {**row, "ratio": ratio, "ratio_low": low, "ratio_high": high, "verdict": verdict(ratio, low, high), "change": change.name}
            | {f"base_{name}": base[name] for name in BASE}
        )
    return pd.DataFrame(rows)


def best_first(table: pd.DataFrame) -> pd.DataFrame:
    """The rows whose ratio has an interval before those with a side that was measured once; else their order stays."""
    return table.sort_values("ratio_low", key=lambda lows: lows.isna(), kind="stable").reset_index(drop=True) if len(table) else table


def ratio_cell(row: Any, name: str = "ratio") -> str:
    """A ratio with its interval: "1.23 (1.20 to 1.26)"."""
    if missing(row[name]) or math.isnan(row[name]):
        return "–"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.2f}" if missing(low) else f"{row[name]:.2f} ({low:.2f} to {high:.2f})"
