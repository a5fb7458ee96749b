"""Records as claims read them, with what must be equal between them as categories; and which of
them a contrast compares. Of each key the latest attempt counts. A term's Records are pooled once,
and paired once with those that are equal in all other fields.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from multigpu.analysis.compare import counterparts
from multigpu.analysis.points import where
from multigpu.spec.collective import CollectiveRun
from multigpu.spec.run import Run
from multigpu_study.claims.core import KINDS, Contrast, Predicate, Selection

UNMATCHED = frozenset(
    {"devices", "warmup_steps", "timed_steps", "warmup_calls", "calls", "samples"}
)
"""How long a Run was measured may differ between the sides of a contrast (each has the least number
of steps).
"""
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
NEEDED = (
    "key",
    "status",
    "launch_id",
    "machine",
    "timing_version",
    "framework",
    "devices",
    "device_type",
)
FIGURES = (
    "key",
    "status",
    "framework",
    "launch_id",
    "repeat",
    "units_per_s",
    "step_time_s",
    "median_step_s",
)
"""What is read of the Records that a setting compares."""
READ = (
    *NEEDED,
    *FIGURES,
    "attempt",
    "measured_at",
    "gpu",
    "flags",
    "warmup_steps",
    "timed_steps",
    "warmup_s",
)


def plain(value: Any) -> Any:
    """The value as Python's own: missing is None, whole floats are ints."""
    if pd.isna(value):
        return None
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def admitted(
    table: pd.DataFrame, predicate: Predicate, contrast: Contrast, frameworks: Sequence[str]
) -> pd.DataFrame:
    """Those in the scope of a predicate and a contrast: fields, kind of machine, least number of
    steps; of these frameworks.
    """
    own = where(
        where(where(table, **dict(predicate.where)), **dict(contrast.where)), framework=frameworks
    )
    least = {
        "warmup_steps": predicate.warmup_steps,
        "timed_steps": max(predicate.timed_steps, contrast.steps_at_least),
    }
    own = own[
        np.logical_and.reduce([own[name].fillna(0).ge(count) for name, count in least.items()])
    ]
    if predicate.machines == "gpu":
        own = where(own[own["gpu"].ne("")], device_type="cuda", gpu=...)
    return own.reset_index(drop=True)


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
    one = [
        "machine",
        "key",
        "protocol",
        "tuned",
    ]
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
    own = [
        "batch_size",
        "scaling",
        "seed",
        "steps",
        "samples",
        "steps_per_epoch",
        "step_time_s",
        "layout",
        "devices",
    ]
    named = {
        "repeat": frame["seed"],
        "timing_version": frame["training_version"],
        "timed_steps": frame["steps"].fillna(1),
    }
    return frame.drop(columns=own).assign(devices=frame["multiple"], warmup_steps=0, **named)


PREPARED = {"hosts": _hosts, "synchrony": _synchrony, "training": _training}
NONE = rows(pd.DataFrame())


def quantity(table: pd.DataFrame, name: str) -> pd.Series:
    """A figure of each row, NaN where it is not positive; `warmup_slowdown` is the mean warm-up
    step over the mean timed step.
    """
    found = (
        pd.to_numeric(table[name], errors="coerce").astype("float64")
        if name in table
        else pd.Series(np.nan, index=table.index)
    )
    return found.where(table["status"].eq("ok") & found.gt(0) & found.lt(np.inf))


class Pairs(NamedTuple):
    """The pairs of rows that a contrast compares. settings: a row each, with `devices`, `identity`
    (settings of one differ in the device count
        alone) and, under the number of each term,
    a point. records: FIGURES of all points, with their `point` and the `value` that is compared.
        fields: by setting, what tells it from
    others: what all its terms have in common, then what they differ in, joined.
    """

    contrast: Contrast
    settings: pd.DataFrame
    records: pd.DataFrame
    fields: Sequence[dict[str, Any]]


def _numbered(table: pd.DataFrame, names: Iterable[Any]) -> np.ndarray:
    """For each row the number of its group, whose rows are equal in all of these columns."""
    # codes: of categories
    columns = (getattr(table[name].array, "codes", table[name]) for name in names)
    together = np.column_stack([np.zeros(len(table)), *columns])
    return np.unique(together, axis=0, return_inverse=True)[1].reshape(-1)


def paired(contrast: Contrast, table: pd.DataFrame) -> Pairs:
    """Every setting of the rows in which all terms have Records; of those that differ in the
    version of the timer alone, the newest. A term's Runs vary in what terms name; terms of equal
    `select` take the same Runs, and all without a fixed device count the same count.
    """
    table = (
        table.assign(value=quantity(table, contrast.quantity))
        .dropna(subset="value")
        .reset_index(drop=True)
    )
    names = [name for name in CONTEXT if not (contrast.paired and name in POOLED)]
    varied = [name for name in names if name in contrast.varied]
    # of others no Record has any
    fixed = [
        name for name in names if name not in contrast.varied and len(table[name].cat.categories)
    ]
    ids = (
        table[["devices"]].astype("float64").assign(timer=table["timing_version"].astype("float64"))
    )
    ids["fixed"] = _numbered(table, (name for name in fixed if name != "timing_version"))
    ids["variant"] = _numbered(table, varied)
    point = pd.Series(_numbered(ids, ["devices", "fixed", "variant", "timer"]), index=ids.index)
    points = ids.assign(point=point).drop_duplicates("point")
    selects, sides = list(dict.fromkeys(term.select for term in contrast.terms)), []
    for term in contrast.terms:
        select = dict(term.select)
        own = points.loc[where(table.loc[points.index, [*select]], **select).index].set_index(
            "point"
        )
        own = own.rename(columns={"variant": f"variant {selects.index(term.select)}"})
        sides.append(
            own[own["devices"].eq(term.devices)].drop(columns="devices") if term.devices else own
        )
    settings, counts = (
        counterparts(sides),
        {term.devices for term in contrast.terms if term.devices},
    )
    if "devices" in settings:
        known = (
            settings["devices"].isin(contrast.counts)
            if isinstance(contrast.counts, tuple)
            else True
        )
        settings = settings[
            settings["devices"].ge(contrast.count_at_least)
            & ~settings["devices"].isin(counts)
            & known
        ]
    else:
        settings = settings.assign(devices=max(counts))
    same = ["fixed", *(f"variant {number}" for number in range(len(selects)))]
    settings = settings.sort_values(["devices", "timer"], kind="stable").drop_duplicates(
        [*same, "devices"], keep="last"
    )
    settings = settings.assign(
        identity=_numbered(settings, same), devices=settings["devices"].astype(int)
    ).reset_index(drop=True)
    terms = [[term.select for term in contrast.terms].index(select) for select in selects]
    told = point.isin(settings[[*range(len(contrast.terms))]].to_numpy().ravel())
    records = table[[*FIGURES, "value"]].assign(point=point, like=_numbered(table, POOLED))[told]
    first = (
        table[[*fixed, *varied]][told & ~point.duplicated()]
        .set_axis(point[told].unique())
        .to_dict("index")
    )
    fields = [
        _fields([first[point] for point in own], fixed, varied)
        for own in settings[terms].itertuples(index=False)
    ]
    return Pairs(contrast, settings, records, fields)


def _fields(
    sides: Sequence[dict[Any, Any]], fixed: Sequence[str], varied: Iterable[str]
) -> dict[str, Any]:
    """Return the fields that a row of each side has in common, then what they differ in, joined."""
    common = {name: found for name in fixed if (found := plain(sides[0][name])) is not None}
    own = {name: found if isinstance(found, int) else str(found) for name, found in common.items()}
    for name in sorted(varied):
        found = dict.fromkeys(plain(side[name]) for side in sides)
        own[name] = " / ".join(str(value) for value in found if value is not None)
    return own


def unmet(contrast: Contrast, table: pd.DataFrame) -> list[tuple[Selection, set[str]]]:
    """The Runs that a contrast lacks Records of: the fields that a term and the scope select, with
    device counts in words.
    """
    lacking = []
    for term in contrast.terms:
        counts = (
            (term.devices,)
            if term.devices
            else contrast.counts
            if isinstance(contrast.counts, tuple)
            else ()
        )
        own = where(table, **dict(term.select))
        own = own[
            own["devices"].isin(counts) if counts else own["devices"].ge(contrast.count_at_least)
        ]
        if quantity(own, contrast.quantity).notna().any():
            continue
        statuses = sorted(set(own["status"]) - {"ok"})
        tried = f" (tried: {', '.join(statuses)})" if statuses else ""
        words = {str(count) + tried for count in counts} or {
            f"{contrast.count_at_least} or more{tried}"
        }
        lacking.append((contrast.where + term.select, words))
    return lacking
