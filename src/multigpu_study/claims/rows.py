"""Records as claims read them, with what must be equal between them as categories; and which of
them a contrast compares. Of each key the latest attempt counts. A term's Records are pooled once,
and paired once with those that are equal in all other fields.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.points import where
from multigpu.spec.collective import CollectiveRun
from multigpu.spec.run import Run
from multigpu_study.analysis.columns import columns
from multigpu_study.claims.core import KINDS, Contrast, Predicate, Selection

UNMATCHED = frozenset(
    {"devices", "warmup_steps", "timed_steps", "warmup_calls", "calls", "samples"}
)
"""How long a Run was measured may differ between a contrast's sides (each long enough)."""
CONTEXT = (
    *(
        name
        for name in dict.fromkeys((*Run.model_fields, *CollectiveRun.model_fields))
        if name not in UNMATCHED
    ),
    *(
        "input_label",
        "machine",
        "gpu",
        "framework_version",
        "timing_version",
        *KINDS["synchrony"]["known"],
    ),
    *("rate_scaling", "schedule", "adjusted", "base_rate", "epochs"),
)
"""What must be equal on all sides of a contrast unless a term names it; new fields of a Run or a
CollectiveRun join by themselves.

A Record of the one has none of the other's own fields, which are equal therefore.
"""
POOLED = ("machine", "gpu", "framework_version")
"""What may differ between pairs of repeats, each of which is of one machine and version."""
NEEDED = tuple(columns("claims_needed"))
FIGURES = tuple(columns("claims_figures"))
"""What is read of the Records that a setting compares."""
READ = (*NEEDED, *FIGURES, *columns("claims_read"))


def plain(value: Any) -> Any:
    """The value as Python's own: missing is None, whole floats are ints."""
    if pd.isna(value):
        return None
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def admitted(
    table: pd.DataFrame, predicate: Predicate, contrast: Contrast, frameworks: Sequence[str]
) -> pd.DataFrame:
    """Rows in the scope of a predicate and a contrast, of these frameworks."""
    chosen = where(
        where(where(table, **dict(predicate.where)), **dict(contrast.where)), framework=frameworks
    )
    least = {
        "warmup_steps": predicate.warmup_steps,
        "timed_steps": max(predicate.timed_steps, contrast.steps_at_least),
    }
    chosen = chosen[
        np.logical_and.reduce([chosen[name].fillna(0).ge(count) for name, count in least.items()])
    ]
    if predicate.machines == "gpu":
        chosen = where(chosen[chosen["gpu"].ne("")], device_type="cuda", gpu=...)
    return chosen.reset_index(drop=True)


def rows(frame: pd.DataFrame, kind: str = "runs") -> pd.DataFrame:
    """The table of a kind of Records (`core.KINDS`) as claims read it: categories of plain values
    in the columns of CONTEXT. ValueError: a column that every verdict needs is missing; the
        sentence names it.
    """
    frame = PREPARED[kind](frame) if kind in PREPARED and len(frame) else frame
    if missing := sorted(set(NEEDED) - set(frame.columns)) if len(frame) else ():
        raise ValueError(f"this is no table of Records: it has no column {', '.join(missing)}")
    frame = frame.reindex(
        columns=list(dict.fromkeys([*frame.columns, *READ, *CONTEXT]))
    ).reset_index(drop=True)
    # an AveragingRecord has two rows, and a run may be the best of two searches
    one = ["machine", "key", "protocol", "tuned"]
    latest = (
        frame.sort_values("attempt", kind="stable")
        .drop_duplicates(one, keep="last")
        .sort_index()
        .reset_index(drop=True)
    )
    context = {
        name: latest[name].astype("category").cat.rename_categories(plain) for name in CONTEXT
    }
    slowdown = latest["warmup_s"] / latest["warmup_steps"].astype("float64") / latest["step_time_s"]
    return latest.assign(
        flags=latest["flags"].astype(object).fillna(""), warmup_slowdown=slowdown, **context
    )


def _hosts(frame: pd.DataFrame) -> pd.DataFrame:
    between = frame[frame["per_host"].notna()]  # processes of one host decide nothing
    return between.assign(
        framework="torch",
        warmup_steps=between["warmup_calls"],
        timed_steps=between["calls"] * between["samples"],
    )


def _synchrony(frame: pd.DataFrame) -> pd.DataFrame:
    fixed: dict[str, Any] = {
        "framework": "numpy",
        "device_type": "worker",
        "launch_id": "virtual",
        "warmup_steps": 0,
        "timed_steps": 1,
    }
    # equal work is a condition where it was the budget
    trained = frame["applied"].where(frame["problem"].notna() & frame["budget_s"].isna())
    found = frame.assign(
        devices=frame["workers"],
        trained=trained,
        gradients_per_s=1 / frame["gradient_time_s"],
        **fixed,
    )
    searched = found["protocol"].eq("downpour")
    return pd.concat([found[~searched], *_best(found[searched])], ignore_index=True)


def _best(runs: pd.DataFrame) -> list[pd.DataFrame]:
    """Of a rule's runs at several rates those at the best one, which is no condition then: by their
    mean loss, and by rare features.
    """
    setting = ["problem", "devices", "trained", "rate_rule"]
    found = []
    for figure, tuned in (("loss_last", "the loss"), ("rare_missed", "rare features")):
        mean = (
            runs[figure]
            .fillna(np.inf)
            .groupby([runs[name] for name in (*setting, "rate")])
            .transform("mean")
        )
        best = mean.eq(mean.groupby([runs[name] for name in setting]).transform("min"))
        found.append(runs[best].assign(rate=np.nan, tuned=tuned))
    return found


def _training(frame: pd.DataFrame) -> pd.DataFrame:
    # epochs as planned, so that one that diverged and ended early still has its place; seeds are
    # repeats and name nothing
    own = list(columns("claims_training_own"))
    named = {
        "repeat": frame["seed"],
        "timing_version": frame["training_version"],
        "timed_steps": frame["steps"].fillna(1),
    }
    return frame.drop(columns=own).assign(devices=frame["multiple"], warmup_steps=0, **named)


PREPARED = {"hosts": _hosts, "synchrony": _synchrony, "training": _training}
NONE = rows(pd.DataFrame())


def quantity(table: pd.DataFrame, name: str) -> pd.Series:
    """A figure of each row, NaN where it is not positive."""
    if name in table:
        found = pd.to_numeric(table[name], errors="coerce").astype("float64")
    else:
        found = pd.Series(np.nan, index=table.index)
    return found.where(table["status"].eq("ok") & found.gt(0) & found.lt(np.inf))


def unmet(contrast: Contrast, table: pd.DataFrame) -> list[tuple[Selection, set[str]]]:
    """List Runs that a contrast lacks: fields that a term and the scope select, device counts."""
    lacking = []
    for term in contrast.terms:
        if term.devices:
            counts: tuple[int, ...] = (term.devices,)
        elif isinstance(contrast.counts, tuple):
            counts = contrast.counts
        else:
            counts = ()
        side = where(table, **dict(term.select))
        side = side[
            side["devices"].isin(counts) if counts else side["devices"].ge(contrast.count_at_least)
        ]
        if quantity(side, contrast.quantity).notna().any():
            continue
        statuses = sorted(set(side["status"]) - {"ok"})
        tried = f" (tried: {', '.join(statuses)})" if statuses else ""
        words = {str(count) + tried for count in counts} or {
            f"{contrast.count_at_least} or more{tried}"
        }
        lacking.append((contrast.where + term.select, words))
    return lacking
