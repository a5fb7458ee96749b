"""Why is a measured point as fast as it is: what it is compared with, where its step's time goes, and what was seen to help.

A cause that no Record measured is named as not measured, with the command that measures it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from multigpu.analysis.asked import (
    TRACED_STEPS,
    check_asked,
    job_words,
    measure_command,
    named,
    none_has,
    of_machine,
    way_words,
)
from multigpu.analysis.causes import SAME_POINT, all_like, causes_frame
from multigpu.analysis.explain_parts import (
    Baseline,
    StepBounds,
    baselines,
    contributions,
    larger_batches,
    step_bounds,
    step_parts,
    too_small,
    traces_like,
    wait_of,
)
from multigpu.analysis.frame import frame_of
from multigpu.analysis.helped import Helped, helped
from multigpu.analysis.metrics import summary
from multigpu.analysis.wording import plural
from multigpu.arguments import parse_fields
from multigpu.placements import find_placement
from multigpu.reading import as_read
from multigpu.record import Record, RecordStore
from multigpu.run import Run

LISTED = 8
"""Most points that are named without being explained."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """All that Records say of one point. Seconds are of one step.

    parts: of its step (`explain_parts.STEP_PARTS`); None: no Run of it was traced. wait_s: NaN where waits were not recorded.
    traces: keys of the traced Runs. shared_model: stretches of one model on several devices, which wait for each other's results.
    traced_step_s: how long their steps took without a profiler (`traces.timed_step_s`). others_busy_s: for how much of the idle time other
    devices worked, at most.
    command: that traces the point, alone: that measures it on one device; each says instead why it cannot be, and "" where it was measured.
    """

    row: pd.Series
    machine: str
    baselines: dict[str, Baseline]
    parts: dict[str, float] | None
    wait_s: float
    traces: tuple[str, ...]
    traced_step_s: float
    launches: float
    others_busy_s: float
    shared_model: bool
    larger: list[tuple[pd.Series, float]]
    bounds: StepBounds
    helped: list[Helped]
    command: str
    alone: str

    @property
    def step_s(self) -> float:
        return float(self.row["step_time_s"])

    @property
    def base(self) -> str:
        """The baseline that the verdict speaks of: one device at its best, or where there is none batches kept on the device; else ""."""
        return next((name for name in ("one_best", "kept") if name in self.baselines), "")

    def added(self) -> dict[str, float] | None:
        """What each part adds to the step at the ideal of `base` (`contributions`); None without a trace or a baseline."""
        return contributions(self.parts, self.baselines[self.base]) if self.parts is not None and self.base else None

    @property
    def too_small(self) -> bool | None:
        """Whether the batch is too small for its way of launching; None: not measured."""
        return None if self.parts is None else too_small(self.parts)


def explain(frame: pd.DataFrame, causes: pd.DataFrame, records: Mapping[str, Record], row: Any) -> Explanation:
    """What these Records say of `row`, a measured point of `summary(frame)`.

    Args:
        frame, causes: of one machine. records: by key.
    """
    points, traces = summary(frame), traces_like(causes, row)
    own = [records[key] for key in str(row["keys"]).split(", ") if key in records and records[key].status == "ok"]
    wait_s = wait_of(own)
    compared = baselines(frame, points, causes, row)
    one = {"devices": 1, "model_parallel": None, "device_ids": None, "peer_access": None}
    parts = step_parts(traces, float(row["step_time_s"]), 0.0 if math.isnan(wait_s) else wait_s)
    means = [float(traces[name].mean()) if len(traces) else math.nan for name in ("timed_step_s", "launches", "others_busy_s")]
    return Explanation(
        row=row,
        machine=str(row["machine"]),
        baselines=compared,
        parts=parts,
        wait_s=wait_s,
        traces=tuple(traces["key"]),
        traced_step_s=means[0],
        launches=means[1],
        others_busy_s=min(means[2], parts["launching"]) if parts else math.nan,
        shared_model=find_placement(row["placement"]).compute in ("stage", "sections") and row["devices"] > 1,
        larger=larger_batches(frame, points, row) if parts is not None and too_small(parts) else [],
        bounds=step_bounds(frame, row),
        helped=helped(frame, points, row),
        command="" if len(traces) else _command(own[0].run, traced_steps=TRACED_STEPS),
        alone="" if "one_same" in compared or row["devices"] == 1 else _command(own[0].run, **one),
    )


def _command(run: Run, **other: Any) -> str:
    """The command that measures such a Run, or why there can be none."""
    try:
        return f"`{measure_command(run, **other)}`"
    except ValueError as error:
        return f"cannot be: {error}"


def timed_twin(record: Record) -> Record:
    """A traced Record as one of its own timed steps, which ran without the profiler."""
    run = record.run.model_copy(update={"traced_steps": 0, "traced_from": None})
    return record.model_copy(update={"run": run})


def find_record(records: Sequence[Record], key: str) -> Record:
    """The Record called `key`, or whose key alone begins so.

    Raises:
        ValueError: there is none, or several.
    """
    found = [record for record in records if record.key == key] or [record for record in records if record.key.startswith(key)]
    if len(found) != 1:
        many = f"{len(found)} Records' keys begin with {key!r}" if found else f"no Record is called {key!r}"
        raise ValueError(f"{many}: `records` lists them, traced ones by `--traced`; or name fields such as workload=nmt")
    return found[0]


def explain_key(records: Sequence[Record], key: str) -> tuple[list[Explanation], str]:
    """The point of the Record called `key`, and why there is nothing to explain ("" if there is).

    Where a traced Record has no timed one of its point beside it, its own timed steps speak.

    Raises:
        ValueError: as `find_record`.
    """
    record = find_record(records, key)
    if record.status != "ok":
        return [], f"Record {record.key} holds no measurement ({record.status.replace('_', ' ')}): {record.reason}"
    here = [one for one in records if one.machine.name == record.machine.name and one.run.workload == record.run.workload]
    frame = frame_of(here)
    points = summary(frame)
    if not record.run.traced_steps:
        point = points[[record.key in str(keys).split(", ") for keys in points["keys"]]]
    else:
        own = frame_of([timed_twin(record)]).iloc[0]
        point = all_like(points[points["n"] > 0], {name: own[name] for name in SAME_POINT})
        if point.empty:
            here = [*here, timed_twin(record)]  # its key is the traced one's, by which it is found and named
            frame = frame_of(here)
            points = summary(frame)
            point = points[[record.key in str(keys).split(", ") for keys in points["keys"]]]
    point = point.sort_values("n", ascending=False, kind="stable")
    traced = [one for one in here if one.run.traced_steps]
    return [explain(frame, causes_frame(traced), {one.key: one for one in here}, point.iloc[0])], ""


def explain_fields(
    records: Sequence[Record], fields: Mapping[str, Any], machine: str | None = None, most: int = 3
) -> tuple[list[Explanation], str]:
    """The points that have these fields, the plainest first and `most` at most, and in words what was left out or is not there.

    Raises:
        ValueError: as `asked.check_asked` and `asked.of_machine`.
    """
    check_asked(fields)
    whole = frame_of(records)
    frame = of_machine(whole, fields.get("workload"), machine)
    points = named(frame, fields)
    if points.empty or not points["n"].gt(0).any():
        return [], nothing(frame, points, fields, machine)
    points = points[points["n"] > 0]
    chosen = points.head(most)
    told: dict[Any, Explanation] = {}
    for place, rows in chosen.groupby(["machine", "workload"]):  # models may stand on different machines
        here = [record for record in records if (record.machine.name, record.run.workload) == place]
        causes, by_key = causes_frame(record for record in here if record.run.traced_steps), {record.key: record for record in here}
        own = whole[[both == place for both in zip(whole["machine"], whole["workload"], strict=True)]]
        told |= {index: explain(own, causes, by_key, row) for index, row in rows.iterrows()}
    found = [told[index] for index in chosen.index]
    left = points.iloc[most:]
    others = [f"  {str(row['keys']).split(', ')[0]}  {way_words(row)}; {job_words(row)}" for _, row in left.head(LISTED).iterrows()]
    return found, "\n".join(
        [f"{plural(len(others), 'further point')} of these fields; name more of them, or a key:", *others]
    ) if others else ""


def nothing(frame: pd.DataFrame, points: pd.DataFrame, fields: Mapping[str, Any], machine: str | None) -> str:
    """Why there is no measured point with these fields, and the command that measures one."""
    if len(points):
        tried = points.iloc[0]
        return (
            f"{way_words(tried)}, {job_words(tried)}, was tried and not measured ({tried['status'].replace('_', ' ')}): {tried['reason']}"
        )
    return none_has(frame, fields, machine)


def explained(store: RecordStore, words: Sequence[str], machine: str | None = None, most: int = 3, form: str = "text") -> str:
    """The answer of `python -m multigpu explain`, as text or JSON.

    Raises:
        ValueError: words that are neither one key nor fields; an unknown value; a machine without Records.
    """
    from multigpu.analysis.explain_words import as_dict, as_text

    if most < 1:
        raise ValueError(f"--limit {most}: at least 1 point is needed")
    records = as_read(store)
    if len(words) == 1 and "=" not in words[0]:
        found, rest = explain_key(records, words[0])
    else:
        found, rest = explain_fields(records, parse_fields(words), machine, most)
    if form == "json":
        return json.dumps({"points": [as_dict(one) for one in found], "note": rest}, indent=1)
    return "\n\n".join(filter(None, [*(as_text(one) for one in found), rest]))
