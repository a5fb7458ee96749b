"""The tidy table as plain rows, and the groups of repeats that a contrast compares."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import pandas as pd

from multigpu.claims.core import Contrast, Predicate, Selection
from multigpu.collectives.run import CollectiveRun
from multigpu.run import Run

Row = Mapping[str, Any]
Fields = tuple[tuple[str, Any], ...]

# How long a Run was measured may differ between the sides of a contrast (each has the least number of steps).
UNMATCHED = frozenset({"warmup_steps", "timed_steps", "warmup_calls", "calls", "samples"})
SYNCHRONY_FIELDS = (
    *("clock", "protocol", "gradients", "start", "law", "problem", "rate_rule", "rate", "budget_s", "trained", "engine", "server_device"),
)
"""What must be equal between rows of `synchrony_frame`; trained: gradients applied, where that was the budget."""
TRAINING_FIELDS = ("rate_scaling", "schedule", "adjusted", "base_rate", "epochs")
"""What must be equal between rows of `training_frame`, beside a Run's fields."""
CONTEXT = (
    *(name for name in dict.fromkeys((*Run.model_fields, *CollectiveRun.model_fields)) if name not in UNMATCHED),
    "input_label",
    "machine",
    "gpu",
    "framework_version",
    "timing_version",
    *SYNCHRONY_FIELDS,
    *TRAINING_FIELDS,
)
"""What must be equal on both sides of a contrast unless a term names it; new fields of a Run or a CollectiveRun join by themselves.

A Record of the one has none of the other's own fields, which are equal therefore.
"""


def plain(value: Any) -> Any:
    """The value as Python's own: missing is None, whole floats are ints, lists are tuples."""
    if isinstance(value, list | tuple | set):
        return tuple(plain(item) for item in value)
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return None if math.isnan(value) else int(value) if value.is_integer() else value
    return value


def rows(frame: pd.DataFrame) -> list[Row]:
    """The table as rows, the latest attempt of each key only.

    Each stands under the machine that measured it.

    Raises:
        ValueError: a column that every verdict needs is missing; the sentence names it.
    """
    if frame.empty:
        return []
    missing = sorted(
        {"key", "status", "launch_id", "machine", "timing_version", "framework", "devices", "device_type"} - set(frame.columns)
    )
    if missing:
        raise ValueError(f"this is no table of Records: it has no column {', '.join(missing)}")
    latest: dict[tuple[str, str], Row] = {}
    for record in frame.to_dict("records"):
        row: dict[str, Any] = {str(name): plain(value) for name, value in record.items()}
        name = (row["machine"], row["key"])
        held = latest.get(name)
        if held is None or (held.get("attempt") or 0) <= (row.get("attempt") or 0):
            latest[name] = row
    return list(latest.values())


def collective_rows(frame: pd.DataFrame) -> list[Row]:
    """The frame of CollectiveRecords as rows of the same kind: calls stand for steps, and PyTorch starts them all."""
    if frame.empty:
        return []
    steps = {"warmup_steps": frame["warmup_calls"], "timed_steps": frame["calls"] * frame["samples"]}
    return rows(frame.assign(framework="torch", **steps))


def matches(row: Row, selection: Selection) -> bool:
    """Whether the row has one of the wanted values in every selected field."""
    return all(row.get(field) in values for field, values in selection)


def admitted(row: Row, predicate: Predicate) -> bool:
    """Whether the row lies in the predicate's scope: its fields, its kind of machine, its least number of steps."""
    if predicate.machines == "gpu" and (row["device_type"] != "cuda" or ("gpu" in row and not row["gpu"])):
        return False
    enough_steps = (row.get("warmup_steps") or 0) >= predicate.warmup_steps and (row.get("timed_steps") or 0) >= predicate.timed_steps
    return enough_steps and matches(row, predicate.where)


STEP_BY_MEDIAN, RATE_BY_MEDIAN = "step_by_median_s", "units_per_s_by_median"
"""A step and a rate as the median step has them; not in TensorFlow, which offers no events between steps: they end when dispatched."""


def quantity(row: Row, name: str) -> float | None:
    """A positive figure of the row, or None; `warmup_slowdown` is the mean warm-up step over the mean timed step."""
    if name in (STEP_BY_MEDIAN, RATE_BY_MEDIAN):
        rate, step, median = (quantity(row, part) for part in ("units_per_s", "step_time_s", "median_step_s"))
        if row["framework"] == "tensorflow" or not (rate and step and median):
            return None
        return median if name == STEP_BY_MEDIAN else rate * step / median
    if name == "warmup_slowdown":
        warmup, step = quantity(row, "warmup_s"), quantity(row, "step_time_s")
        return warmup / row["warmup_steps"] / step if warmup and step else None
    value = row.get(name) if row["status"] == "ok" else None
    return float(value) if isinstance(value, int | float) and 0 < value < math.inf else None


class Comparison:
    """All terms of a contrast in one setting: equal in every field that no term names.

    identity: the setting's fields without the version of the timer, to see which of two versions is newer.
    """

    def __init__(self, contrast: Contrast, fixed: Fields, variants: Sequence[Fields], devices: int, groups: Sequence[list[Row]]) -> None:
        self.groups = groups
        self.devices = devices
        self.timing_version: int = dict(fixed)["timing_version"] or 0
        self.identity = (tuple(pair for pair in fixed if pair[0] != "timing_version"), tuple(variants))
        self.fields: dict[str, Any] = {name: value for name, value in fixed if value is not None}
        self.fields |= {f: _joined([dict(v).get(f) for v in variants]) for f in sorted(contrast.varied)}
        self.models = {row.get("model") for group in groups for row in group}


def _joined(values: list[Any]) -> str:
    return " / ".join(str(value) for value in dict.fromkeys(values) if value is not None)


POOLED = ("machine", "gpu", "framework_version")
"""What may differ between pairs, each of which is of one machine and version."""


def comparisons(contrast: Contrast, table: Sequence[Row]) -> Iterator[Comparison]:
    """Every setting of the table in which all terms have Records.

    Of settings that differ in the version of the timing method alone, the newest only.
    """
    pooled = POOLED if contrast.paired else ()
    fixed_names = [name for name in CONTEXT if name not in contrast.varied and name not in ("devices", *pooled)]
    varied_names = sorted(contrast.varied)
    selects = list(dict.fromkeys(term.select for term in contrast.terms))
    # fixed fields -> select -> varied fields -> devices -> repeats
    found: dict[Fields, dict[Selection, dict[Fields, dict[int, list[Row]]]]] = {}
    for row in table:
        wanted = [select for select in selects if matches(row, select)]
        if not wanted:
            continue
        fixed = tuple((name, row.get(name)) for name in fixed_names)
        varied = tuple((name, row.get(name)) for name in varied_names)
        for select in wanted:
            by_devices = found.setdefault(fixed, {}).setdefault(select, {}).setdefault(varied, {})
            by_devices.setdefault(row["devices"], []).append(row)
    newest: dict[Any, Comparison] = {}
    for fixed, by_select in found.items():
        if len(by_select) < len(selects):
            continue
        for variants in product(*(by_select[select] for select in selects)):
            taken = {select: by_select[select][variant] for select, variant in zip(selects, variants, strict=True)}
            for devices in _counts(contrast, taken):
                groups = [taken[term.select].get(term.devices or devices, []) for term in contrast.terms]
                if all(groups):
                    comparison = Comparison(contrast, fixed, variants, devices, groups)
                    held = newest.setdefault((comparison.identity, devices), comparison)
                    if held.timing_version < comparison.timing_version:
                        newest[comparison.identity, devices] = comparison
    yield from newest.values()


def _counts(contrast: Contrast, taken: Mapping[Selection, Mapping[int, list[Row]]]) -> list[int]:
    """The device counts N that the contrast looks at and these Runs have."""
    if all(term.devices for term in contrast.terms):
        return [max(term.devices or 0 for term in contrast.terms)]
    fixed = {term.devices for term in contrast.terms}
    known = {count for by_devices in taken.values() for count in by_devices}
    wanted = known if isinstance(contrast.counts, str) else known & set(contrast.counts)
    return sorted(count for count in wanted if count >= contrast.count_at_least and count not in fixed)


def unmet(contrast: Contrast, table: Sequence[Row]) -> dict[Selection, set[str]]:
    """The Runs that a contrast lacks Records of: device counts, in words, by the fields its terms and its scope select."""
    lacking: dict[Selection, set[str]] = {}
    for term in contrast.terms:
        counts = (term.devices,) if term.devices else contrast.counts if isinstance(contrast.counts, tuple) else ()
        of_term = [row for row in table if matches(row, term.select) and (not counts or row["devices"] in counts)]
        if not counts:
            of_term = [row for row in of_term if row["devices"] >= contrast.count_at_least]
        if all(quantity(row, contrast.quantity) is None for row in of_term):
            statuses = sorted({row["status"] for row in of_term} - {"ok"})
            tried = f" (tried: {', '.join(statuses)})" if statuses else ""
            words = {str(count) + tried for count in counts} or {f"{contrast.count_at_least} or more{tried}"}
            lacking.setdefault(contrast.where + term.select, set()).update(words)
    return lacking
