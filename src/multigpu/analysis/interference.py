"""Whether lanes that measure side by side disturb each other: every Run's step time beside neighbours over the same alone."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Literal

import pandas as pd

from multigpu.analysis.formulas import interval, pooled_rate, ratio_interval
from multigpu.record import Record

ALLOWED = 1.005
"""The study's rule: Runs may share a machine only where this slows none of them by more than 0.5%."""

Verdict = Literal["may share", "disturbed", "not shown"]

COLUMNS = {
    "machine": "string",
    "run": "string",
    "framework": "string",
    "execution": "string",
    "devices": "int64",
    "lanes": "int64",
    "n_alone": "int64",
    "n_shared": "int64",
    "ratio": "float64",
    "low": "float64",
    "high": "float64",
    "verdict": "string",
}
KINDS = {name: kind for name, kind in COLUMNS.items() if name not in ("run", "n_alone", "n_shared")} | {
    **{"runs": "int64", "shown": "int64", "reach": "float64"}
}
LANES = {name: kind for name, kind in COLUMNS.items() if name not in ("lanes", "n_alone", "n_shared", "verdict")} | {
    "gpus": "string",
    "n": "int64",
}


def verdict_of(low: float, high: float, allowed: float = ALLOWED) -> Verdict:
    """What an interval of the ratio shows; one that is missing (NaN) shows nothing."""
    if high <= allowed:
        return "may share"
    return "disturbed" if low > allowed else "not shown"


def _by_lane(records: Iterable[Record]) -> dict[tuple[Hashable, ...], list[Record]]:
    """What was measured of one Run in one place: the same machine, versions and GPUs, as many cores."""
    groups: dict[tuple[Hashable, ...], list[Record]] = {}
    for record in records:
        if record.lane is not None and record.status == "ok" and record.measurement is not None:
            what = (record.machine.name, record.framework_version, record.timing_version, record.run.digest)
            groups.setdefault((*what, record.lane.cores, tuple(record.lane.gpus)), []).append(record)
    return groups


def _as_frame(rows: Sequence[dict[str, object]], types: dict[str, str], order: Sequence[str]) -> pd.DataFrame:
    columns = {name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in types.items()}
    return pd.DataFrame(columns).sort_values(list(order), ignore_index=True)


def interference_table(records: Iterable[Record]) -> pd.DataFrame:
    """A row a Run that was measured alone in a lane and beside neighbours in the same one: the same GPUs, as many cores.

    ratio is the mean step time beside neighbours over that alone (low, high: its 95% interval, by launches where they differ, as all
    ratios of this study): 1.01 is 1% slower. Without such Records the table is empty.

    Returns:
        machine, run, framework, execution, devices, lanes (of the machine, this one too), n_alone and n_shared (repeats), ratio, low,
        high, verdict.
    """
    rows = [row for own in _by_lane(records).values() for row in _compared(own)]
    return _as_frame(rows, COLUMNS, ("machine", "framework", "devices", "run", "lanes"))


def kinds_table(table: pd.DataFrame) -> pd.DataFrame:
    """`interference_table` by kind, of one form of execution: what sharing does to steps launched in this way.

    ratio is the geometric mean over Runs, its interval Student's over their logarithms: Runs differ in model and batch, so their spread
    says more of the kind than any one of them. How uncertain each Run's own ratio is does not enter; `shown` and `reach` say it. A kind of
    one Run has that Run's interval.

    Returns:
        machine, framework, execution, devices, lanes, ratio, low, high, verdict, runs, shown (how many Runs have the kind's verdict by
        their own interval), reach (the highest end of a Run's own interval).
    """
    rows: list[dict[str, object]] = []
    kind = ["machine", "framework", "execution", "devices", "lanes"]
    for key, own in table.groupby(kind, sort=True):
        low, high = (math.exp(bound) for bound in interval(own["ratio"].map(math.log)))
        if len(own) == 1:
            low, high = own["low"].iloc[0], own["high"].iloc[0]
        ratio = math.exp(own["ratio"].map(math.log).mean())
        verdict = verdict_of(low, high)
        found = {"runs": len(own), "ratio": ratio, "low": low, "high": high, "verdict": verdict}
        found |= {"shown": int(own["verdict"].eq(verdict).sum()), "reach": own["high"].max()}
        rows.append(dict(zip(kind, key, strict=True)) | found)
    return _as_frame(rows, KINDS, kind)


def lanes_table(records: Iterable[Record]) -> pd.DataFrame:
    """What sharing adds without anybody's fault: each lane's mean step time over that of the first lane, all measuring side by side.

    Equal GPUs are not equally fast. Runs that are compared with each other may stand in different lanes, on different GPUs.

    Returns:
        machine, run, framework, execution, devices, gpus, n, ratio, low, high: a row a Run and lane, the first lanes left out.
    """
    lanes: dict[tuple[Hashable, ...], dict[tuple[int, ...], list[Record]]] = {}
    for (*what, gpus), own in _by_lane(records).items():
        if shared := [record for record in own if record.lane and record.lane.neighbours]:
            lanes.setdefault(tuple(what), {})[tuple(gpus)] = shared  # type: ignore[arg-type]
    rows: list[dict[str, object]] = []
    for places in lanes.values():
        first, *others = sorted(places)
        rows += [_row(places[first], places[gpus]) | {"gpus": ", ".join(map(str, gpus)), "n": len(places[gpus])} for gpus in others]
    return _as_frame(rows, LANES, ("machine", "framework", "devices", "run", "gpus"))


def _row(base: list[Record], other: list[Record]) -> dict[str, object]:
    """Mean step times of `other` over those of `base`, which are of one Run."""
    (steps_base, wall_base, launches_base), (steps, wall, launches) = _numbers(base), _numbers(other)
    # steps a second of the base over the others' are the others' seconds a step over the base's
    low, high = ratio_interval(steps_base, wall_base, steps, wall, launches_base, launches)
    ratio = pooled_rate(steps_base, wall_base) / pooled_rate(steps, wall)
    run = base[0].run
    what = {"machine": base[0].machine.name, "run": run.label(), "framework": run.framework, "execution": run.execution}
    return what | {"devices": run.devices, "ratio": ratio, "low": low, "high": high}


def _compared(records: list[Record]) -> list[dict[str, object]]:
    """One Run in one lane: a row for each number of neighbours that it had."""
    by_neighbours: dict[int, list[Record]] = {}
    for record in records:
        assert record.lane
        by_neighbours.setdefault(record.lane.neighbours, []).append(record)
    alone = by_neighbours.pop(0, [])
    rows = []
    for neighbours, shared in sorted(by_neighbours.items() if alone else ()):
        row = _row(alone, shared)
        verdict = verdict_of(row["low"], row["high"])  # type: ignore[arg-type]
        rows.append(row | {"lanes": neighbours + 1, "n_alone": len(alone), "n_shared": len(shared), "verdict": verdict})
    return rows


def _numbers(records: list[Record]) -> tuple[list[float], list[float], list[str]]:
    """Timed steps, their seconds, and the launch of each repeat."""
    walls = [record.measurement.wall_s for record in records if record.measurement]
    return [float(record.run.timed_steps) for record in records], walls, [record.launch_id for record in records]
