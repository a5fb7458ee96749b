"""Records as claims read them: the latest attempt of each key, with what must be equal between them as codes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
STEP_BY_MEDIAN, RATE_BY_MEDIAN = "step_by_median_s", "units_per_s_by_median"
"""A step and a rate as the median step has them; not in TensorFlow, which offers no events between steps: they end when dispatched."""


def plain(value: Any) -> Any:
    """The value as Python's own: missing is None, whole floats are ints."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, float):
        return None if math.isnan(value) else int(value) if value.is_integer() else value
    return value


@dataclass(frozen=True)
class Rows:
    """frame: the figures of Records. codes: by column of CONTEXT, which of the column's `values` a row has."""

    frame: pd.DataFrame
    codes: pd.DataFrame
    values: Mapping[str, Sequence[Any]]

    def matches(self, selection: Selection) -> np.ndarray:
        """Whether a row has one of the wanted values in every selected field."""
        kept = np.ones(len(self.codes), dtype=bool)
        for name, wanted in selection:
            if name == "devices":
                kept &= self.frame["devices"].isin(wanted).to_numpy()
            else:
                kept &= np.array([value in wanted for value in self.values[name]])[self.codes[name].to_numpy()]
        return kept

    def take(self, kept: np.ndarray) -> Rows:
        """The rows that are to be kept."""
        if kept.all():
            return self
        frame, codes = (table[kept].reset_index(drop=True) for table in (self.frame, self.codes))
        return Rows(frame, codes, self.values)

    def admitted(self, predicate: Predicate, frameworks: Sequence[str]) -> Rows:
        """Those in the predicate's scope: its fields, its kind of machine, its least number of steps; of these frameworks."""
        enough = [self.frame[name].fillna(0).ge(getattr(predicate, name)).to_numpy() for name in ("warmup_steps", "timed_steps")]
        kept = enough[0] & enough[1] & self.matches((*predicate.where, ("framework", tuple(frameworks))))
        if predicate.machines == "gpu":
            kept &= self.matches((("device_type", ("cuda",)),)) & ~self.matches((("gpu", ("", None)),))
        return self.take(kept)

    def of(self, contrast: Contrast) -> Rows:
        """Those in a contrast's own scope."""
        return self.take(self.matches(contrast.where) & self.frame["timed_steps"].fillna(0).ge(contrast.steps_at_least).to_numpy())


NONE = Rows(pd.DataFrame(columns=[*NEEDED, *READ]), pd.DataFrame(columns=CONTEXT, dtype=int), {name: [None] for name in CONTEXT})


def rows(frame: pd.DataFrame, kind: str = "runs") -> Rows:
    """The table of a kind of Records (`core.KINDS`) as claims read it.

    Raises:
        ValueError: a column that every verdict needs is missing; the sentence names it.
    """
    frame = PREPARED[kind](frame) if kind in PREPARED and len(frame) else frame
    if frame.empty:
        return NONE
    if missing := sorted(set(NEEDED) - set(frame.columns)):
        raise ValueError(f"this is no table of Records: it has no column {', '.join(missing)}")
    frame = frame.reindex(columns=list(dict.fromkeys([*frame.columns, *NEEDED, *READ, *CONTEXT]))).reset_index(drop=True)
    latest = frame.assign(attempt=frame["attempt"].fillna(0)).sort_values("attempt", kind="stable")
    # an AveragingRecord has two rows, of two protocols
    latest = latest.drop_duplicates(["machine", "key", "protocol"], keep="last").sort_index().reset_index(drop=True)
    coded = {name: pd.factorize(latest[name]) for name in CONTEXT}  # a missing value has the code -1, and so the last place
    values = {name: [*map(plain, found), None] for name, (_, found) in coded.items()}
    own = latest[[name for name in latest if name not in CONTEXT or name in NEEDED]]
    flags = latest["flags"].astype(object).fillna("")
    return Rows(own.assign(flags=flags), pd.DataFrame({name: codes for name, (codes, _) in coded.items()}), values)


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


def quantity(table: pd.DataFrame, name: str) -> pd.Series:
    """A figure of each row, NaN where it is not positive; `warmup_slowdown` is the mean warm-up step over the mean timed step."""
    if name in (STEP_BY_MEDIAN, RATE_BY_MEDIAN):
        rate, step, median = (quantity(table, part) for part in ("units_per_s", "step_time_s", "median_step_s"))
        found = median.where(rate.gt(0)) if name == STEP_BY_MEDIAN else rate * step / median
        return found.where(table["framework"].ne("tensorflow"))
    if name == "warmup_slowdown":
        return quantity(table, "warmup_s") / table["warmup_steps"].astype("float64") / quantity(table, "step_time_s")
    found = pd.to_numeric(table[name], errors="coerce").astype("float64") if name in table else pd.Series(np.nan, index=table.index)
    return found.where(table["status"].eq("ok") & found.gt(0) & found.lt(np.inf))
