"""Which Records a contrast compares: those of each term that are equal in every field that no term names, pooled once and paired once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from multigpu.claims.core import Contrast, Predicate, Selection
from multigpu.collectives.run import CollectiveRun
from multigpu.run import Run

UNMATCHED = frozenset({"devices", "warmup_steps", "timed_steps", "warmup_calls", "calls", "samples"})
"""How long a Run was measured may differ between the sides of a contrast (each has the least number of steps)."""
SYNCHRONY_FIELDS = (
    *("clock", "protocol", "gradients", "start", "law", "problem", "rate_rule", "rate", "budget_s", "trained", "engine", "server_device"),
)
"""What must be equal between rows of `synchrony_frame`; trained: gradients applied, where that was the budget."""
TRAINING_FIELDS = ("rate_scaling", "schedule", "adjusted", "base_rate", "epochs")
"""What must be equal between rows of `training_frame`, beside a Run's fields."""
CONTEXT = (
    *(name for name in dict.fromkeys((*Run.model_fields, *CollectiveRun.model_fields)) if name not in UNMATCHED),
    *("input_label", "machine", "gpu", "framework_version", "timing_version", *SYNCHRONY_FIELDS, *TRAINING_FIELDS),
)
"""What must be equal on all sides of a contrast unless a term names it; new fields of a Run or a CollectiveRun join by themselves.

A Record of the one has none of the other's own fields, which are equal therefore.
"""
POOLED = ("machine", "gpu", "framework_version")
"""What may differ between pairs of repeats, each of which is of one machine and version."""
PLACE = {name: place for place, name in enumerate(CONTEXT)}
NEEDED = ("key", "status", "launch_id", "machine", "timing_version", "framework", "devices", "device_type")
READ = ("attempt", "repeat", "gpu", "flags", "warmup_steps", "timed_steps", "warmup_s", "units_per_s", "step_time_s", "median_step_s")


def plain(value: Any) -> Any:
    """The value as Python's own: missing is None, whole floats are ints."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return None if math.isnan(value) else int(value) if value.is_integer() else value
    return value


@dataclass(frozen=True)
class Rows:
    """Records as claims read them: the latest attempt of each key.

    frame: their figures. codes: [row, column of CONTEXT], which of the column's `values` it has.
    """

    frame: pd.DataFrame
    codes: np.ndarray
    values: Mapping[str, Sequence[Any]]

    def of(self, names: Sequence[str]) -> np.ndarray:
        """The codes of these columns."""
        return self.codes[:, [PLACE[name] for name in names]]

    def matches(self, selection: Selection) -> np.ndarray:
        """Whether a row has one of the wanted values in every selected field."""
        kept = np.ones(len(self.codes), dtype=bool)
        for name, wanted in selection:
            if name == "devices":
                kept &= self.frame["devices"].isin(wanted).to_numpy()
            else:
                values = self.values[name]
                kept &= np.array([value in wanted for value in values])[self.codes[:, PLACE[name]]]
        return kept

    def take(self, kept: np.ndarray) -> Rows:
        """The rows that are to be kept."""
        return self if kept.all() else Rows(self.frame[kept].reset_index(drop=True), self.codes[kept], self.values)


NONE = Rows(pd.DataFrame(columns=[*NEEDED, *READ]), np.zeros((0, len(CONTEXT)), dtype=int), {name: [None] for name in CONTEXT})


def rows(frame: pd.DataFrame) -> Rows:
    """The table of Records as claims read it.

    Raises:
        ValueError: a column that every verdict needs is missing; the sentence names it.
    """
    if frame.empty:
        return NONE
    missing = sorted(set(NEEDED) - set(frame.columns))
    if missing:
        raise ValueError(f"this is no table of Records: it has no column {', '.join(missing)}")
    frame = frame.reindex(columns=list(dict.fromkeys([*frame.columns, *NEEDED, *READ, *CONTEXT]))).reset_index(drop=True)
    latest = frame.assign(attempt=frame["attempt"].fillna(0)).sort_values("attempt", kind="stable")
    latest = latest.drop_duplicates(["machine", "key"], keep="last").sort_index().reset_index(drop=True)
    coded = {name: pd.factorize(latest[name]) for name in CONTEXT}  # a missing value has the code -1, and so the last place
    values = {name: [*map(plain, found), None] for name, (_, found) in coded.items()}
    own = [name for name in latest if name not in PLACE or name in NEEDED]
    flags = latest["flags"].astype(object).fillna("")
    return Rows(latest[own].assign(flags=flags), np.column_stack([codes for codes, _ in coded.values()]), values)


def admitted(table: Rows, predicate: Predicate, frameworks: Sequence[str]) -> Rows:
    """The rows in the predicate's scope: its fields, its kind of machine, its least number of steps; of these frameworks."""
    frame = table.frame
    enough = frame["warmup_steps"].fillna(0).ge(predicate.warmup_steps) & frame["timed_steps"].fillna(0).ge(predicate.timed_steps)
    kept = enough.to_numpy() & table.matches((*predicate.where, ("framework", tuple(frameworks))))
    if predicate.machines == "gpu":
        kept &= table.matches((("device_type", ("cuda",)),)) & ~table.matches((("gpu", ("", None)),))
    return table.take(kept)


def in_scope(contrast: Contrast, table: Rows) -> Rows:
    """The rows in a contrast's own scope."""
    return table.take(table.matches(contrast.where) & table.frame["timed_steps"].fillna(0).ge(contrast.steps_at_least).to_numpy())


STEP_BY_MEDIAN, RATE_BY_MEDIAN = "step_by_median_s", "units_per_s_by_median"
"""A step and a rate as the median step has them; not in TensorFlow, which offers no events between steps: they end when dispatched."""


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


def numbered(codes: np.ndarray) -> np.ndarray:
    """For each row of codes the number of its group, all of which are equal."""
    return np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1) if codes.size else np.zeros(len(codes), dtype=int)


class Pairs(NamedTuple):
    """What a contrast compares.

    settings: a row each, with `devices`, `identity` (settings of one differ in the device count alone) and, under the number of each term,
        a point. records: those of all points, with their `point` and the `value` that is compared. fields: by setting, what tells it from
        others: what all its terms have in common, then what they differ in, joined.
    """

    contrast: Contrast
    settings: pd.DataFrame
    records: pd.DataFrame
    fields: Sequence[dict[str, Any]]


def paired(contrast: Contrast, table: Rows, value: pd.Series | None = None) -> Pairs:
    """Every setting of the rows in which all terms have Records; of those that differ in the version of the timer alone, the newest.

    A term's Runs vary in what terms name; terms of equal `select` take the same Runs, and all without a fixed device count the same count.

    value: of each row, what is compared (NaN: nothing); None: the contrast's quantity.
    """
    value = quantity(table.frame, contrast.quantity) if value is None else value
    table, value = table.take(value.notna().to_numpy()), value[value.notna()].reset_index(drop=True)
    names = [name for name in CONTEXT if not (contrast.paired and name in POOLED)]
    fixed, varied = [name for name in names if name not in contrast.varied], [name for name in names if name in contrast.varied]
    ids = table.frame[["devices"]].astype("float64")
    ids["fixed"], ids["variant"] = numbered(table.of([name for name in fixed if name != "timing_version"])), numbered(table.of(varied))
    ids["timer"] = table.frame["timing_version"].astype("float64")
    point = pd.Series(numbered(ids.to_numpy()), index=ids.index)
    points = ids.assign(point=point).drop_duplicates("point")
    settings: pd.DataFrame | None = None
    selects = list(dict.fromkeys(term.select for term in contrast.terms))
    for number, term in enumerate(contrast.terms):
        own = points[table.matches(term.select)[points.index]]
        own = own[own["devices"].eq(term.devices)].drop(columns="devices") if term.devices else own
        own = own.rename(columns={"variant": f"variant {selects.index(term.select)}", "point": number})
        settings = own if settings is None else settings.merge(own)
    assert settings is not None
    counts = {term.devices for term in contrast.terms if term.devices}
    if "devices" in settings:
        known = settings["devices"].isin(contrast.counts) if isinstance(contrast.counts, tuple) else True
        settings = settings[settings["devices"].ge(contrast.count_at_least) & ~settings["devices"].isin(counts) & known]
    else:
        settings = settings.assign(devices=max(counts))
    same = ["fixed", *(f"variant {number}" for number in range(len(selects)))]
    settings = settings.sort_values(["devices", "timer"], kind="stable").drop_duplicates([*same, "devices"], keep="last")
    settings = settings.assign(identity=numbered(settings[same].to_numpy()), devices=settings["devices"].astype(int)).reset_index(drop=True)
    first = pd.Series(points.index, index=points["point"])
    terms = [[term.select for term in contrast.terms].index(select) for select in selects]
    fields = [_fields(table, [first[point] for point in own], fixed, varied) for own in settings[terms].itertuples(index=False)]
    records = table.frame.assign(point=point, value=value, like=numbered(table.of(POOLED)))
    return Pairs(contrast, settings, records[point.isin(settings[[*range(len(contrast.terms))]].to_numpy().ravel())], fields)


def _fields(table: Rows, sides: Sequence[int], fixed: Sequence[str], varied: Sequence[str]) -> dict[str, Any]:
    """sides: a row of each side."""
    known = [{name: table.values[name][table.codes[row, PLACE[name]]] for name in (*fixed, *varied)} for row in sides]
    own = {name: known[0][name] for name in fixed if known[0][name] is not None}
    return own | {name: _joined(side[name] for side in known) for name in sorted(varied)}


def _joined(values: Iterable[Any]) -> str:
    return " / ".join(str(value) for value in dict.fromkeys(values) if value is not None)


def unmet(contrast: Contrast, table: Rows) -> dict[Selection, set[str]]:
    """The Runs that a contrast lacks Records of: device counts, in words, by the fields its terms and its scope select."""
    lacking: dict[Selection, set[str]] = {}
    for term in contrast.terms:
        counts = (term.devices,) if term.devices else contrast.counts if isinstance(contrast.counts, tuple) else ()
        own = table.frame[table.matches(term.select)]
        own = own[own["devices"].isin(counts) if counts else own["devices"].ge(contrast.count_at_least)]
        if quantity(own, contrast.quantity).notna().any():
            continue
        statuses = sorted(set(own["status"]) - {"ok"})
        tried = f" (tried: {', '.join(statuses)})" if statuses else ""
        words = {str(count) + tried for count in counts} or {f"{contrast.count_at_least} or more{tried}"}
        lacking.setdefault(contrast.where + term.select, set()).update(words)
    return lacking
