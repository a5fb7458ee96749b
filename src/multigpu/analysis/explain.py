"""Why a measured point is as fast as it is: what it is compared with, where its step's time goes,
and what was seen to be faster. A cause that no Record measured is named with the command that
measures it; a loss is stated only where an interval says it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pandas as pd

from multigpu.analysis.compare import SINGLE_MARGIN, ratio_columns
from multigpu.analysis.fields import SAME
from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import bounds
from multigpu.analysis.points import one_length, points
from multigpu.analysis.query import (
    alike,
    by_machine,
    differing,
    like,
    like_replicas,
    like_single,
    measure_command,
    none_has,
    plainest,
    query,
    run_of,
    semantics,
)
from multigpu.analysis.read import Study, records_of
from multigpu.analysis.steps import wait_of
from multigpu.analysis.traces import PARTS, SAME_POINT, causes_frame, with_untraced_steps
from multigpu.analysis.words import missing
from multigpu.machine.machine import this_machine
from multigpu.records.record import Record
from multigpu.spec.parse import parse_fields
from multigpu.spec.rules.inputs import ON_DEVICE

WAITS = ("input", "launching", "host_work", "skew", "communication", "peer_copies", "host_copies")
"""Parts of a step in which the device does not compute."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """All that Records say of one point, `row`; seconds are of one step.
    baselines: by name, one_best (one device at its best), one_same (the same placement on one
        device), independent (replicas that share nothing on as many devices), kept (batches that
        stay on the device): the counterpart's row with ratio (the point's rate over it) and
        of_ideal (over the devices too where the counterpart is one device), each with bounds.
    parts: of the step ("compute" and `WAITS`), which add up to it; None: no Run of it was traced.
        traces: keys of the traced Runs.
    bounds_s: the least that a step can take by arithmetic, memory, traffic. faster: rows of
        `faster`. trace: the command that traces the point, "" where one was. alone_s: what the
        device computes in such a step of independent replicas; None where none was traced.
    """

    row: pd.Series
    baselines: dict[str, pd.Series]
    parts: dict[str, float] | None
    traces: tuple[str, ...]
    launches: float
    bounds_s: dict[str, float]
    faster: pd.DataFrame
    trace: str
    alone_s: float | None = None

    @property
    def step_s(self) -> float:
        return float(self.row["step_time_s"])

    @property
    def base(self) -> pd.Series | None:
        """The point that losses are counted against: one device at its best; independent replicas
        where one was measured without these kernels, or in slower ways only.
        """
        best, alone = self.baselines.get("one_best"), self.baselines.get("independent")
        if alone is None or alone["keys"] == self.row["keys"]:
            return best
        if best is None or best["of_ideal"] > SINGLE_MARGIN:
            return alone
        return best

    @property
    def lost(self) -> bool:
        """Whether the point is slower than its baseline promises, beyond what repeats vary."""
        base = self.base
        if base is None or base["keys"] == self.row["keys"]:
            return False
        high = base["of_ideal"] if math.isnan(base["of_ideal_high"]) else base["of_ideal_high"]
        return bool(high < (1 if base["n"] > 1 and self.row["n"] > 1 else 1 / SINGLE_MARGIN))

    def causes(self) -> list[tuple[str, float]]:
        """The waits of the step, the longest first, those of a twentieth of the step at least."""
        if self.parts is None:
            return []
        waits = [
            (name, self.parts[name]) for name in WAITS if self.parts[name] >= 0.05 * self.step_s
        ]
        return sorted(waits, key=lambda pair: -pair[1])


def baselines(table: pd.DataFrame, row: Any) -> dict[str, pd.Series]:
    """Return the measured points that a point is compared with (see `Explanation`)."""
    bases = {
        "one_best": like_single(table, row),
        "one_same": like(table, row, ("scaling", "device_ids", "peer_access"), devices=1),
        "independent": like_replicas(table, row),
    }
    if row["inputs"] not in ON_DEVICE and row["unit"] == "images":
        fed: dict[str, Any] = {
            "input_workers": None,
            "prefetch": 0,
            "staging": None,
            "image_dtype": None,
        }
        bases["kept"] = like(table, row, inputs="synthetic", input_label="synthetic", **fed)
    elif not missing(row["feed"]):
        bases["kept"] = like(table, row, feed=None)
    return {name: _baseline(row, base, name) for name, base in bases.items() if base is not None}


def _baseline(row: Any, base: pd.Series, name: str) -> pd.Series:
    ratio = ratio_columns(row.to_frame().T, base, "ratio").iloc[0].astype("float64")
    ideal = ratio / (row["devices"] if name.startswith("one_") else 1)
    return pd.concat(
        [base, ratio, ideal.rename(lambda column: column.replace("ratio", "of_ideal"))]
    )


def scaled_parts(
    traces: pd.DataFrame, step_s: float, wait_s: float = 0.0
) -> dict[str, float] | None:
    """A step's parts ("compute" and `WAITS`) scaled to `step_s`, means over its traced Runs; None
    without any.

    traces: rows of `traces.causes_frame`. wait_s: host time until the step had its batch, which a
        profiler does not see: it is taken out of what else counts as the host's launches, and never
        more than that.
    """
    if traces.empty:
        return None
    scale = step_s / traces["timed_step_s"].astype(float)
    parts = {name: fmean(traces[f"{name}_s"] * scale) for name in PARTS}
    parts["peer_copies"] = min(parts["communication"], fmean(traces["peer_copies_s"] * scale))
    parts["communication"] -= parts["peer_copies"]
    parts["input"] = min(wait_s, parts["launching"])
    parts["launching"] -= parts["input"]
    return parts


def faster(table: pd.DataFrame, row: Any) -> pd.DataFrame:
    """Five points of the same job, devices and conditions that were faster: the fastest of all, of
    those with an interval where there are any, then those that differ in one field. Faster: all of
    the ratio's interval lies above 1, or a single run's is `SINGLE_MARGIN`.
    """
    rivals = one_length(alike(table, row, SAME, energy_window_s=None))
    rivals = rivals[rivals["n"] > 0]
    rivals = rivals.join(ratio_columns(rivals, row, "ratio"))
    sure = (rivals["ratio_low"] > 1) | (
        rivals["ratio_low"].isna() & (rivals["ratio"] >= SINGLE_MARGIN)
    )
    quicker = rivals.assign(_first=rivals["ratio_low"].notna())[sure].sort_values(
        ["_first", "ratio"], ascending=False, kind="stable"
    )
    quicker["changed"] = pd.Series(
        [differing(row, rival) for _, rival in quicker.iterrows()], quicker.index, dtype=object
    )
    trains = [semantics(rival).facts.is_one_model for _, rival in quicker.iterrows()]
    quicker = quicker[quicker["changed"].map(bool) & pd.Series(trains, quicker.index, dtype=bool)]
    return quicker[quicker["changed"].map(len).eq(1) | quicker.index.isin(quicker.index[:1])].head(
        5
    )


def explain(
    table: pd.DataFrame, frame: pd.DataFrame, records: Sequence[Record], row: Any
) -> Explanation:
    """Explain a measured point `row` by the Records of one machine; table: the machine's points."""
    keys = set(str(row["keys"]).split(", "))
    own = [record for record in records if record.key in keys and record.status == "ok"]
    traces, beside = _traces(records, row), baselines(table, row)
    alone = beside.get("independent")
    parts_alone = (
        None
        if alone is None
        else scaled_parts(_traces(records, alone), float(alone["step_time_s"]))
    )
    limits, units = bounds(frame[frame["key"].isin(keys)]), float(row["rate"] * row["step_time_s"])
    least = {
        "arithmetic": "compute_bound",
        "memory": "memory_bound",
        "traffic": "communication_bound",
    }
    try:
        trace = "" if len(traces) else measure_command(run_of(row), traced_steps=3)
    except ValueError as error:
        trace = f"cannot be: {error}"
    return Explanation(
        row=row,
        baselines=beside,
        parts=scaled_parts(traces, float(row["step_time_s"]), wait_of(own)),
        traces=tuple(traces["key"]),
        launches=float(traces["launches"].mean()),
        bounds_s={
            name: units / float(limits[column].mean())
            for name, column in least.items()
            if limits[column].notna().any()
        },
        faster=faster(table, row),
        trace=trace,
        alone_s=parts_alone["compute"] if parts_alone else None,
    )


def _traces(records: Sequence[Record], row: Any) -> pd.DataFrame:
    """The rows of `traces.causes_frame` that are of this point."""
    wanted = {
        name: row[name]
        for name in ("model", "placement", "devices", "batch_size", "precision", "framework")
    }
    own = [
        record
        for record in records
        if all(getattr(record.run, name) == value for name, value in wanted.items())
    ]
    return alike(
        causes_frame([record for record in with_untraced_steps(own) if record.run.traced_steps]),
        row,
        SAME_POINT,
    )


def explain_fields(
    study: Study, fields: Mapping[str, Any], machine: str | None = None, most: int = 1
) -> tuple[list[Explanation], str, pd.DataFrame]:
    """The points with these fields, the plainest first, of one machine; why there is none; and the
    points left out.
    """
    every = study.everywhere
    matches = query(every, fields, machine)
    measured = matches[matches["n"] > 0]
    if measured.empty:
        if len(matches):
            tried = f"It was tried and not measured: {matches.iloc[0]['reason']}."
        else:
            tried = none_has(every, fields, machine)
        return [], tried, measured
    chosen = plainest(by_machine(measured, this_machine().name)[0], fields)
    own = study.on(chosen.iloc[0]["machine"])
    told = [
        explain(own.points, study.rows, own.records, row) for _, row in chosen.head(most).iterrows()
    ]
    return told, "", chosen.iloc[most:]


def explain_key(study: Study, key: str) -> tuple[list[Explanation], str, pd.DataFrame]:
    """The point of the Record whose key is or begins so; where only a traced Record is of it, its
    own timed steps speak.
    """
    frame, none = study.rows, study.everywhere.iloc[:0]
    records = records_of(study.runs)
    matches = [record for record in records if record.key == key] or [
        record for record in records if record.key.startswith(key)
    ]
    if len(matches) != 1:
        if matches:
            many = f"{len(matches)} Records' keys begin with {key!r}"
        else:
            many = f"no Record is called {key!r}"
        raise ValueError(
            f"{many}: `records` lists them, traced ones by `--traced`; or name fields such as"
            " workload=nmt"
        )
    record = matches[0]
    if record.status != "ok":
        return (
            [],
            (
                f"Record {record.key} holds no measurement ({record.status.replace('_', ' ')}):"
                f" {record.reason}"
            ),
            none,
        )
    own = study.on(record.machine.name)
    table = own.points
    if record.run.traced_steps:
        timed = record.model_copy(
            update={"run": record.run.model_copy(update={"traced_steps": 0, "traced_from": None})}
        )
        alone = frame_of([timed])
        row = points(alone).iloc[0]
        known = like(table, row)
        row, frame = (known, frame) if known is not None else (row, alone)
    else:
        row = table[[record.key in str(keys).split(", ") for keys in table["keys"]]].iloc[0]
    return [explain(table, frame, own.records, row)], "", none


def explain_words(
    study: Study, words: Sequence[str], machine: str | None = None, most: int = 1
) -> tuple[list[Explanation], str, pd.DataFrame]:
    """As `explain_key` of one word, else as `explain_fields`."""
    if len(words) == 1 and "=" not in words[0]:
        return explain_key(study, words[0])
    return explain_fields(study, parse_fields(words), machine, most)
