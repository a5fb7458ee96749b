"""Of what a measured point's step consists, and with what it is compared: the numbers behind `python -m multigpu explain`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.asked import CONDITIONS, LENGTH, differing, like
from multigpu.analysis.causes import PARTS, SAME_POINT, all_like, timed_parts
from multigpu.analysis.feeding import waited_s
from multigpu.analysis.limits import bounds
from multigpu.analysis.metrics import JOB
from multigpu.analysis.ordinary import USUAL_BUCKETS
from multigpu.analysis.ways import own_rows, ratio_of
from multigpu.conditions import ON_DEVICE
from multigpu.record import Record

STEP_PARTS = {
    "compute": "the device computes",
    "input": "waiting for batches (input)",
    "launching": "idle, the host launches (dispatch)",
    "host_work": "idle, the host gathers, merges, updates",
    "skew": "launch skew",
    "communication": "exposed communication",
    "peer_copies": "exposed copies between devices",
    "host_copies": "exposed copies to and from the host",
}
"""Of each part of a step: what it is. They add up to the step."""

WAITS = tuple(name for name in STEP_PARTS if name != "compute")
SMALL_SHARE = 0.5
"""Of a step: computing less than this while the host's launches are the largest wait, a batch is too small for its way of launching."""


@dataclass(frozen=True, eq=False)
class Baseline:
    """What a point is compared with. ratio: the point's rate over this one's. of_ideal: over devices times it (one device), else over it.

    ideal_step_s: how long the point's step would take at that ideal. differs: fields of a Run in which the two differ. parts: of
    its traced step, scaled to the ideal step; None where it was not traced.
    """

    row: pd.Series
    ratio: float
    low: float
    high: float
    of_ideal: float
    ideal_step_s: float
    differs: tuple[str, ...]
    parts: dict[str, float] | None


def step_parts(traces: pd.DataFrame, step_s: float, wait_s: float = 0.0) -> dict[str, float] | None:
    """`STEP_PARTS` of a step that takes `step_s`, s: means over traced Runs of the point; None without any.

    Args:
        traces: rows of `causes.causes_frame`. Device's parts stay as traced, the others share the rest (`causes.timed_parts`).
        wait_s: host time until the step had its batch, 0 where nothing is fed. A profiler does not see it, so it is taken out of what
            else counts as the host's launches, and never more than that.
    """
    if traces.empty:
        return None
    each = []
    for _, row in traces.iterrows():
        parts = timed_parts({name: float(row[f"{name}_s"]) for name in PARTS}, step_s)
        own = float(row["communication_s"])
        copied = parts["communication"] * min(1.0, float(row["peer_copies_s"]) / own) if own > 0 else 0.0
        waited = min(wait_s, parts["launching"])
        split = {"input": waited, "launching": parts["launching"] - waited}
        each.append(parts | split | {"peer_copies": copied, "communication": parts["communication"] - copied})
    return {name: fmean(parts[name] for parts in each) for name in STEP_PARTS}


def traces_like(causes: pd.DataFrame, row: Any) -> pd.DataFrame:
    """Every traced Run of the same point (`causes.SAME_POINT`)."""
    return all_like(causes, {name: row[name] for name in SAME_POINT})


def wait_of(records: Iterable[Record]) -> float:
    """Mean over a point's Records of the host time a step waited for its batch, s; NaN where that was not recorded."""
    known = [math.nan if record.run.feed else waited_s(record) for record in records]
    return fmean(known) if known else math.nan


def best_single(points: pd.DataFrame, row: Any) -> pd.Series | None:
    """One device at its best: the fastest measured point of the job on one device, by preference under the same `CONDITIONS`.

    As `metrics.scaling_table`'s, which looks at the job alone; what differs here is named beside it.
    """
    ones = all_like(points[(points["n"] > 0) & points["devices"].eq(1)], {name: row[name] for name in JOB})
    shared = tuple(name for name in CONDITIONS if name not in ("device_ids", "peer_access"))
    for names in ((*shared, *LENGTH), shared, ()):
        found = all_like(ones, {name: row[name] for name in names}) if names else ones
        if len(found):
            return found.sort_values("rate", ascending=False, kind="stable").iloc[0]
    return None


def baselines(frame: pd.DataFrame, points: pd.DataFrame, causes: pd.DataFrame, row: Any) -> dict[str, Baseline]:
    """What was measured of: one_best (one device at its best), one_same (the same placement on one device), independent (as many
    devices without a joint model), kept (the same with batches that stay on the device).
    """
    found = {
        "one_best": best_single(points, row),
        "one_same": like(points, row, ("scaling", "device_ids", "peer_access"), devices=1),
        "independent": like(points, row, placement="independent", processes="per_device", **USUAL_BUCKETS),
    }
    if row["inputs"] not in ON_DEVICE and row["unit"] == "images":
        fed: dict[str, Any] = {"input_workers": None, "prefetch": 0, "staging": None, "image_dtype": None}
        found["kept"] = like(points, row, inputs="synthetic", input_label="synthetic", free=(), **fed)
    elif not pd.isna(row["feed"]):
        found["kept"] = like(points, row, feed=None)
    return {name: _baseline(frame, causes, row, base, name) for name, base in found.items() if base is not None}


def _baseline(frame: pd.DataFrame, causes: pd.DataFrame, row: Any, base: pd.Series, name: str) -> Baseline:
    ratio, (low, high) = ratio_of(frame, row, base)
    times = int(row["devices"]) if name.startswith("one_") else 1
    ideal_s = float(row["rate"] * row["step_time_s"] / (times * base["rate"]))
    traced = step_parts(traces_like(causes, base), float(base["step_time_s"]))
    scale = ideal_s / float(base["step_time_s"])
    parts = None if traced is None else {part: value * scale for part, value in traced.items()}
    ignored = ("devices",) if name.startswith("one_") else ()
    return Baseline(base, ratio, low, high, ratio / times, ideal_s, tuple(differing(row, base, ignored)), parts)


def contributions(parts: Mapping[str, float], base: Baseline) -> dict[str, float]:
    """What each part adds to the ideal step of `base`, s.

    With a traced baseline: the part less the baseline's own; they add up to step - ideal. Without one, waits count whole (at most that,
    since a baseline waits too), and computing by what it takes beyond the whole ideal step (at least that).
    """
    if base.parts is not None:
        return {name: parts[name] - base.parts[name] for name in STEP_PARTS}
    return {name: max(0.0, parts[name] - base.ideal_step_s) if name == "compute" else parts[name] for name in STEP_PARTS}


def too_small(parts: Mapping[str, float]) -> bool:
    """Whether the device computes for a small share of the step (`SMALL_SHARE`) while the host's launches are its largest wait."""
    largest = max(WAITS, key=lambda name: parts[name])
    return largest == "launching" and parts["compute"] < SMALL_SHARE * sum(parts.values())


def larger_batches(frame: pd.DataFrame, points: pd.DataFrame, row: Any) -> list[tuple[pd.Series, float]]:
    """Points that equal `row` but for a larger batch, each with its rate over `row`'s: another job, and so evidence and no advice."""
    bigger = points[(points["n"] > 0) & (points["batch_size"] > row["batch_size"])]
    found = [like(bigger, row, batch_size=size) for size in sorted(set(bigger["batch_size"]))]
    return [(point, ratio_of(frame, point, row)[0]) for point in found if point is not None]


@dataclass(frozen=True)
class StepBounds:
    """The least that a step can take, s: its arithmetic, what passes through memory, what travels (NaN: no such ceiling is known, or
    nothing travels).
    """

    arithmetic_s: float
    memory_s: float
    traffic_s: float


def step_bounds(frame: pd.DataFrame, row: Any) -> StepBounds:
    """The bounds of `limits.bounds` as seconds a step, means over the point's Records."""
    own = bounds(own_rows(frame, row))
    units = float(row["rate"] * row["step_time_s"])
    names = ("compute_bound", "memory_bound", "communication_bound")
    return StepBounds(*(float(np.mean(units / own[name])) for name in names))
