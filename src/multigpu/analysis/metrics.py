"""From the frame to points: repeats pooled into one row a point, and every point beside three baselines.

The formulas themselves are in `formulas.py` and can be used from here too.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from multigpu.analysis.formulas import (
    NO_INTERVAL,
    Interval,
    efficiency,
    exposed,
    interval,
    jitter,
    launch_gap,
    overhead,
    pooled_rate,
    rate_interval,
    ratio_interval,
    speedup,
    spread,
    throughput,
)
from multigpu.analysis.frame import RUN_FIELDS

__all__ = [
    "JOB",
    "POINT",
    "SERIES",
    "Interval",
    "efficiency",
    "exposed",
    "interval",
    "jitter",
    "launch_gap",
    "overhead",
    "pooled_rate",
    "rate_interval",
    "ratio_interval",
    "scaling_table",
    "speedup",
    "spread",
    "summary",
    "throughput",
]

HEADLINE_REPEATS, HEADLINE_LAUNCHES = 5, 2

# what one device does in a step, however it is done: the best of these is "one device at its best"
JOB = (
    *("machine", "gpu", "cpu", "device_type", "workload", "model", "unit", "batch_size", "inputs", "input_label"),
    *("sequence_length", "precision", "optimizer", "timing_version"),
)
# how it is done: a series is one job done one way, on several numbers of devices
NOT_A_WAY = {*JOB, "scaling", "devices", "seed"}
WAY = ("framework_version", *(name for name in RUN_FIELDS if name not in NOT_A_WAY))
SERIES = (*JOB, "scaling", *WAY)
POINT = (*SERIES, "devices")
"""Everything that makes two rows repeats of one point: all but seed, repeat and launch."""

Key = tuple[Hashable, ...]
Plain = dict[str, Any]
"""A row as Python's own values; missing is None."""


def _plain(frame: pd.DataFrame) -> list[Plain]:
    columns = {name: [None if gone else value for value, gone in zip(column, column.isna(), strict=True)] for name, column in frame.items()}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]  # type: ignore[arg-type]


def _key(row: Plain, columns: Sequence[str]) -> Key:
    return tuple(row[name] for name in columns)


def _grouped(rows: Sequence[Plain], by: Sequence[str]) -> dict[Key, list[Plain]]:
    groups: dict[Key, list[Plain]] = {}
    for row in rows:
        groups.setdefault(_key(row, by), []).append(row)
    return groups


def job_of(row: Any) -> Key:
    """What one device does in a step of this row's Run: equal for two rows of one job (`JOB`)."""
    return tuple(None if pd.isna(row[name]) else row[name] for name in JOB)


def _joined(values: Iterable[str | None]) -> str:
    """The distinct values that are not empty, in order, comma-joined."""
    return ", ".join(dict.fromkeys(value for value in values if value))


SUMMARY_TYPES = {
    **dict.fromkeys(("n", "launches"), "int64"),
    **dict.fromkeys(("rate", "rate_low", "rate_high", "step_time_s", "spread", "launch_gap", "jitter_s", "peak_memory_gib"), "float64"),
    "moved_bytes": "float64",
    **dict.fromkeys(("tier", "status", "reason", "flags", "keys", "commits"), "string"),
}


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else math.nan


def _summarise(rows: Sequence[Plain]) -> Plain:
    ok = [row for row in rows if row["status"] == "ok"]
    units, wall_s, launches = ([row[name] for row in ok] for name in ("units", "wall_s", "launch_id"))
    n, fresh = len(ok), len(set(launches))
    tier = "missing" if n == 0 else "headline" if n >= HEADLINE_REPEATS and fresh >= HEADLINE_LAUNCHES else "screening"
    low, high = rate_interval(units, wall_s, launches)
    return {
        "n": n,
        "launches": fresh,
        "rate": pooled_rate(units, wall_s),
        "rate_low": low,
        "rate_high": high,
        "step_time_s": sum(wall_s) / sum(row["timed_steps"] for row in ok) if n else math.nan,
        "spread": spread([row["units_per_s"] for row in ok]),
        "launch_gap": launch_gap(units, wall_s, launches),
        "jitter_s": median(row["jitter_s"] for row in ok) if n else math.nan,
        "peak_memory_gib": max((row["peak_memory_gib"] for row in ok if row["peak_memory_gib"] is not None), default=math.nan),
        "moved_bytes": _mean([row["moved_bytes"] for row in ok]),
        "tier": tier,
        "status": "ok" if n else _joined(row["status"] for row in rows),
        "reason": _joined(row["reason"] for row in rows if row["status"] != "ok"),
        "flags": _joined(row["flags"] for row in ok),
        "keys": _joined(row["key"] for row in rows),
        "commits": _joined(row["commit"][:10] for row in ok),
    }


def label_missing(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with the input's label on rows that failed before their input was made, where other rows of that input say it."""
    by = ["model", "inputs", "sequence_length"]
    rows = _plain(frame[[*by, "input_label"]])
    known = {_key(row, by): row["input_label"] for row in reversed(rows) if row["input_label"]}
    labels = [row["input_label"] or known.get(_key(row, by), "") for row in rows]
    return frame.assign(input_label=pd.Series(labels, index=frame.index, dtype="string"))


def summary(frame: pd.DataFrame, by: Sequence[str] | None = None) -> pd.DataFrame:
    """One row a point: its repeats pooled.

    Args:
        frame: of `load_frame`.
        by: the columns that make a point; by default every field of the Run but seed, with machine and versions (`POINT`).

    Returns:
        `by`, then n (repeats with status ok), launches, rate (pooled, units/s), rate_low and rate_high (95%, NaN for n = 1),
        step_time_s (all time / all timed steps), spread and launch_gap (ratios), jitter_s (median), peak_memory_gib (maximum),
        moved_bytes (mean of a step), tier (headline: n >= 5 over >= 2 launches; screening: fewer; missing: none), status,
        reason (why repeats are missing), flags, keys and commits of the Records. In the order in which points first appear.
    """
    by, frame = list(by or POINT), label_missing(frame)
    names = by + [name for name in SUMMARY_TYPES if name not in by]
    if frame.empty:
        types = {name: frame.dtypes.get(name, "string") for name in by} | SUMMARY_TYPES
        return pd.DataFrame({name: pd.Series(dtype=types[name]) for name in names})
    rows = [dict(zip(by, key, strict=True)) | _summarise(group) for key, group in _grouped(_plain(frame), by).items()]
    columns = {name: [row[name] for row in rows] for name in names}
    types = {name: frame.dtypes[name] for name in by} | SUMMARY_TYPES
    return pd.DataFrame({name: pd.Series(values, dtype=types[name]) for name, values in columns.items()})


class Repeats(NamedTuple):
    """The repeats of one point that are ok: units and seconds of each, and its launch."""

    units: np.ndarray
    wall_s: np.ndarray
    launches: list[str]

    @property
    def rate(self) -> float:
        return pooled_rate(self.units, self.wall_s)


class _Baselines:
    """The repeats of every point, found by any of the study's three comparisons."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._points: dict[Key, Repeats] = {}
        self._best: dict[Key, tuple[Repeats, str]] = {}
        ok = [row for row in _plain(frame) if row["status"] == "ok"]
        for point, rows in _grouped(ok, POINT).items():
            units, wall_s = (np.array([row[name] for row in rows], dtype=float) for name in ("units", "wall_s"))
            repeats = Repeats(units, wall_s, [row["launch_id"] for row in rows])
            self._points[point] = repeats
            if rows[0]["devices"] == 1:
                self._points.setdefault(_with(point, scaling="either"), repeats)
                job, name = _key(rows[0], JOB), ", ".join(rows[0][field] for field in ("placement", "framework", "execution"))
                if job not in self._best or repeats.rate > self._best[job][0].rate:
                    self._best[job] = (repeats, name)

    def of(self, row: Plain) -> Repeats | None:
        return self._points.get(_key(row, POINT))

    def one_device(self, row: Plain) -> Repeats | None:
        """The same series on one device, where weak and strong scaling are the same job."""
        key = _with(_key(row, POINT), devices=1)
        return self._points.get(key) or self._points.get(_with(key, scaling="either"))

    def best_single(self, row: Plain) -> tuple[Repeats | None, str]:
        return self._best.get(_key(row, JOB), (None, ""))

    def ceiling(self, row: Plain) -> Repeats | None:
        return self._points.get(_with(_key(row, POINT), placement="independent"))


def _with(key: Key, **values: Hashable) -> Key:
    return tuple(values.get(column, value) for column, value in zip(POINT, key, strict=True))


def _ratio(own: Repeats | None, base: Repeats | None) -> tuple[float, Interval]:
    if own is None or base is None:
        return float("nan"), NO_INTERVAL
    if own is base:
        return 1.0, Interval(1.0, 1.0)
    bounds = ratio_interval(own.units, own.wall_s, base.units, base.wall_s, own.launches, base.launches)
    return speedup(own.rate, base.rate), bounds


RATIOS = ("speedup", "efficiency", "speedup_best", "efficiency_best", "ceiling_ratio")
SCALING_TYPES = {
    **{f"{name}{end}": "float64" for name in RATIOS for end in ("", "_low", "_high")},
    **dict.fromkeys(("overhead", "overhead_best", "best_single_rate", "ceiling_rate"), "float64"),
    "best_single": "string",
}


def scaling_table(frame: pd.DataFrame) -> pd.DataFrame:
    """`summary` with three baselines beside every point, one row a point, series together and in order of devices.

    speedup, efficiency, overhead: against the same placement (same series) on one device, as the documents do.
    speedup_best, efficiency_best, overhead_best: against the fastest single device of the same job (`JOB`: model, batch, input, precision),
        whatever its placement, framework, layout or execution; `best_single` names it.
    ceiling_ratio: against independent replicas on as many devices, done the same way: what merging and moving cost on this host.
    Each ratio has `_low` and `_high` (95%; NaN where either side has n = 1). At one device, weak and strong scaling are the
    same job, so either may serve as a baseline. `scaling` ("weak": batch_size of each device; "strong": of all) is in every row.
    A baseline that was not measured leaves NaN. "Fastest" picks the luckiest of near-equals, so speedup_best errs low.
    """
    frame = label_missing(frame)
    table, baselines = summary(frame), _Baselines(frame)
    rows = []
    for row in _plain(table):
        own, devices = baselines.of(row), row["devices"]
        best, best_name = baselines.best_single(row)
        ceiling = baselines.ceiling(row)
        ratios = {
            "speedup": _ratio(own, baselines.one_device(row)),
            "speedup_best": _ratio(own, best),
            "ceiling_ratio": _ratio(own, ceiling),
        }
        for name in ("speedup", "speedup_best"):
            value, (low, high) = ratios[name]
            ratios[name.replace("speedup", "efficiency")] = (value / devices, Interval(low / devices, high / devices))
        rows.append(
            {f"{name}{end}": v for name, (x, (low, high)) in ratios.items() for end, v in (("", x), ("_low", low), ("_high", high))}
            | {
                "overhead": overhead(ratios["efficiency"][0]),
                "overhead_best": overhead(ratios["efficiency_best"][0]),
                "best_single_rate": best.rate if best else np.nan,
                "best_single": best_name,
                "ceiling_rate": ceiling.rate if ceiling else np.nan,
            }
        )
    table = pd.concat([table, pd.DataFrame(rows, columns=list(SCALING_TYPES), index=table.index).astype(SCALING_TYPES)], axis=1)
    order = table.groupby(list(SERIES), dropna=False, sort=False).ngroup() if len(table) else pd.Series(dtype="int64")
    return table.assign(_series=order).sort_values(["_series", "devices"], kind="stable").drop(columns="_series").reset_index(drop=True)
