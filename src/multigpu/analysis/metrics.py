"""From the frame to points: repeats pooled into one row a point, and every point beside three baselines.

The formulas themselves are in `formulas.py` and can be used from here too.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
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
WAY = ("placement", "framework", "framework_version", "layout", "execution", "warmup_steps", "timed_steps")
SERIES = (*JOB, "scaling", *WAY)
POINT = (*SERIES, "devices")
"""Everything that makes two rows repeats of one point: all but seed, repeat and launch."""

Key = tuple[Hashable, ...]


def _key(row: Any, columns: Sequence[str]) -> Key:
    """The row's values as a dictionary key in which missing equals missing."""
    return tuple(None if pd.isna(row[c]) else row[c] for c in columns)


def job_of(row: Any) -> Key:
    """What one device does in a step of this row's Run: equal for two rows of one job (`JOB`)."""
    return _key(row, JOB)


def _joined(values: pd.Series) -> str:
    """The distinct values that are not empty, in order, comma-joined."""
    return ", ".join(dict.fromkeys(str(v) for v in values.dropna() if str(v)))


SUMMARY_TYPES = {
    **dict.fromkeys(("n", "launches"), "int64"),
    **dict.fromkeys(("rate", "rate_low", "rate_high", "step_time_s", "spread", "launch_gap", "jitter_s", "peak_memory_gib"), "float64"),
    "moved_bytes": "float64",
    **dict.fromkeys(("tier", "status", "reason", "flags", "keys", "commits"), "string"),
}


def _summarise(group: pd.DataFrame) -> dict[str, Any]:
    ok = group[group["status"] == "ok"]
    n, launches = len(ok), ok["launch_id"].nunique()
    tier = "missing" if n == 0 else "headline" if n >= HEADLINE_REPEATS and launches >= HEADLINE_LAUNCHES else "screening"
    units, wall_s = ok["units"].astype("float64"), ok["wall_s"]
    low, high = rate_interval(units, wall_s, list(ok["launch_id"]))
    failed = group[group["status"] != "ok"]
    return {
        "n": n,
        "launches": launches,
        "rate": pooled_rate(units, wall_s),
        "rate_low": low,
        "rate_high": high,
        "step_time_s": wall_s.sum() / ok["timed_steps"].sum() if n else np.nan,
        "spread": spread(ok["units_per_s"]),
        "launch_gap": launch_gap(units, wall_s, list(ok["launch_id"])) if n else np.nan,
        "jitter_s": ok["jitter_s"].median() if n else np.nan,
        "peak_memory_gib": ok["peak_memory_gib"].max(),
        "moved_bytes": ok["moved_bytes"].astype("float64").mean(),
        "tier": tier,
        "status": "ok" if n else _joined(failed["status"]),
        "reason": _joined(failed["reason"]),
        "flags": _joined(ok["flags"]),
        "keys": _joined(group["key"]),
        "commits": _joined(ok["commit"].str[:10]),
    }


def label_missing(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with the input's label on rows that failed before their input was made, where other rows of that input say it."""
    by = ["model", "inputs", "sequence_length"]
    known: dict[Key, str] = {}
    for _, row in frame[[*by, "input_label"]].drop_duplicates().iterrows():
        if row["input_label"]:
            known.setdefault(_key(row, by), row["input_label"])
    labels = [row["input_label"] or known.get(_key(row, by), "") for _, row in frame[["input_label", *by]].iterrows()]
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
    rows = [{name: group[name].iloc[0] for name in by} | _summarise(group) for _, group in frame.groupby(by, dropna=False, sort=False)]
    table = pd.DataFrame(rows, columns=names)
    return table.astype({name: frame.dtypes[name] for name in by} | SUMMARY_TYPES)


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
        ok = frame[frame["status"] == "ok"]
        for _, group in ok.groupby(list(POINT), dropna=False, sort=False) if len(ok) else ():
            first, point = group.iloc[0], _key(group.iloc[0], POINT)
            repeats = Repeats(group["units"].to_numpy(float), group["wall_s"].to_numpy(float), list(group["launch_id"]))
            self._points[point] = repeats
            if first["devices"] == 1:
                self._points.setdefault(_with(point, scaling="either"), repeats)
                held = self._best.get(job_of(first))
                if held is None or repeats.rate > held[0].rate:
                    self._best[job_of(first)] = (repeats, f"{first['placement']}, {first['framework']}, {first['execution']}")

    def of(self, row: Any) -> Repeats | None:
        return self._points.get(_key(row, POINT))

    def one_device(self, row: Any) -> Repeats | None:
        """The same series on one device, where weak and strong scaling are the same job."""
        key = _with(_key(row, POINT), devices=1)
        return self._points.get(key) or self._points.get(_with(key, scaling="either"))

    def best_single(self, row: Any) -> tuple[Repeats | None, str]:
        return self._best.get(job_of(row), (None, ""))

    def ceiling(self, row: Any) -> Repeats | None:
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
    for _, row in table.iterrows():
        own, devices = baselines.of(row), int(row["devices"])
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
