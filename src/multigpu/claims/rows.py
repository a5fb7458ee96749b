"""Records as claims read them: the latest attempt of each key, with what must be equal between them as categories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from multigpu.claims.core import KINDS, Contrast, Predicate, Selection
from multigpu.collectives.run import CollectiveRun
from multigpu.run import Run

UNMATCHED = frozenset({"devices", "warmup_steps", "timed_steps", "warmup_calls", "calls", "samples"})
"""How long a Run was measured may differ between the sides of a contrast (each has the least number of steps)."""
CONTEXT = (
    *(name for name in dict.fromkeys((*Run.model_fields, *CollectiveRun.model_fields)) if name not in UNMATCHED),
    *("input_label", "machine", "gpu", "framework_version", "timing_version", *KINDS["synchrony"]["known"]),
    *("rate_scaling", "schedule", "adjusted", "base_rate", "epochs"),
)
"""What must be equal on all sides of a contrast unless a term names it; new fields of a Run or a CollectiveRun join by themselves.

A Record of the one has none of the other's own fields, which are equal therefore.
"""
NEEDED = ("key", "status", "launch_id", "machine", "timing_version", "framework", "devices", "device_type")
READ = ("attempt", "repeat", "gpu", "flags", "warmup_steps", "timed_steps", "warmup_s", "units_per_s", "step_time_s", "median_step_s")


def plain(value: Any) -> Any:
    """The value as Python's own: missing is None, whole floats are ints."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, float):
        return None if math.isnan(value) else int(value) if value.is_integer() else value
    return value


def matches(table: pd.DataFrame, selection: Selection) -> np.ndarray:
    """Whether a row has one of the wanted values in every selected field; None is a missing one."""
    kept = [table[name].isin(wanted).to_numpy() for name, wanted in selection]
    return np.logical_and.reduce([np.ones(len(table), dtype=bool), *kept])


def taken(table: pd.DataFrame, kept: np.ndarray) -> pd.DataFrame:
    """The rows that are kept, numbered anew."""
    return table if kept.all() else table[kept].reset_index(drop=True)


def admitted(table: pd.DataFrame, predicate: Predicate, frameworks: Sequence[str]) -> pd.DataFrame:
    """Those in the predicate's scope: its fields, its kind of machine, its least number of steps; of these frameworks."""
    kept = matches(table, (*predicate.where, ("framework", tuple(frameworks))))
    for name in ("warmup_steps", "timed_steps"):
        kept &= table[name].fillna(0).ge(getattr(predicate, name)).to_numpy()
    if predicate.machines == "gpu":
        kept &= matches(table, (("device_type", ("cuda",)),)) & ~matches(table, (("gpu", ("", None)),))
    return taken(table, kept)


def within(table: pd.DataFrame, contrast: Contrast) -> pd.DataFrame:
    """Those in a contrast's own scope."""
    kept = matches(table, contrast.where) & table["timed_steps"].fillna(0).ge(contrast.steps_at_least).to_numpy()
    return taken(table, kept)


def rows(frame: pd.DataFrame, kind: str = "runs") -> pd.DataFrame:
    """The table of a kind of Records (`core.KINDS`) as claims read it: categories of plain values in the columns of CONTEXT.

    Raises:
        ValueError: a column that every verdict needs is missing; the sentence names it.
    """
    frame = PREPARED[kind](frame) if kind in PREPARED and len(frame) else frame
    if missing := sorted(set(NEEDED) - set(frame.columns)) if len(frame) else ():
        raise ValueError(f"this is no table of Records: it has no column {', '.join(missing)}")
    frame = frame.reindex(columns=list(dict.fromkeys([*frame.columns, *NEEDED, *READ, *CONTEXT]))).reset_index(drop=True)
    latest = frame.assign(attempt=frame["attempt"].fillna(0)).sort_values("attempt", kind="stable")
    # an AveragingRecord has two rows, of two protocols
    latest = latest.drop_duplicates(["machine", "key", "protocol"], keep="last").sort_index().reset_index(drop=True)
    coded = {name: pd.factorize(latest[name]) for name in CONTEXT}  # a missing value has the code -1
    context = {
        name: pd.Categorical.from_codes(codes, pd.Index([plain(value) for value in found])) for name, (codes, found) in coded.items()
    }
    return latest.assign(flags=latest["flags"].astype(object).fillna(""), **context)


def _hosts(frame: pd.DataFrame) -> pd.DataFrame:
    between = frame[frame["per_host"].notna()]  # processes of one host decide nothing
    return between.assign(framework="torch", warmup_steps=between["warmup_calls"], timed_steps=between["calls"] * between["samples"])


def _synchrony(frame: pd.DataFrame) -> pd.DataFrame:
    fixed: dict[str, Any] = {"framework": "numpy", "device_type": "worker", "launch_id": "virtual", "warmup_steps": 0, "timed_steps": 1}
    # equal work is a condition where it was the budget
    trained = frame["applied"].where(frame["problem"].notna() & frame["budget_s"].isna())
    return frame.assign(devices=frame["workers"], trained=trained, gradients_per_s=1 / frame["gradient_time_s"], **fixed)


def _training(frame: pd.DataFrame) -> pd.DataFrame:
    # epochs as planned, so that one that diverged and ended early still has its place; seeds are repeats and name nothing
    own = ["batch_size", "scaling", "seed", "steps", "samples", "steps_per_epoch", "step_time_s", "layout", "devices"]
    named = {"repeat": frame["seed"], "timing_version": frame["training_version"], "timed_steps": frame["steps"].fillna(1)}
    return frame.drop(columns=own).assign(devices=frame["multiple"], warmup_steps=0, **named)


PREPARED = {"hosts": _hosts, "synchrony": _synchrony, "training": _training}
NONE = rows(pd.DataFrame())


def quantity(table: pd.DataFrame, name: str) -> pd.Series:
    """A figure of each row, NaN where it is not positive; `warmup_slowdown` is the mean warm-up step over the mean timed step."""
    if name == "warmup_slowdown":
        return quantity(table, "warmup_s") / table["warmup_steps"].astype("float64") / quantity(table, "step_time_s")
    found = pd.to_numeric(table[name], errors="coerce").astype("float64") if name in table else pd.Series(np.nan, index=table.index)
    return found.where(table["status"].eq("ok") & found.gt(0) & found.lt(np.inf))


def by_median(table: pd.DataFrame, name: str) -> pd.Series:
    """A step or a rate as the median step has it; not in TensorFlow, which offers no events between steps: they end when dispatched."""
    rate, step, median = (quantity(table, part) for part in ("units_per_s", "step_time_s", "median_step_s"))
    found = {"step_time_s": median.where(rate.gt(0)), "units_per_s": rate * step / median}.get(name, median * np.nan)
    return found.where(table["framework"].ne("tensorflow"))
