"""From the frame to lines that can be forecast: a job under a placement with its counts, launches, spread and merge, or why not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from multigpu.analysis.all_reduce import SHORT_BYTES
from multigpu.analysis.findings import panels
from multigpu.analysis.forecast import PARAMETERS, Forecast, HeldOut, Points, forecast, held_out, launch_residuals
from multigpu.analysis.forecast_calibration import factor, score
from multigpu.analysis.forecast_merge import Demand, Links, demand_of
from multigpu.analysis.limits import ceilings
from multigpu.analysis.metrics import POINT, scaling_table
from multigpu.placements import find_placement
from multigpu.workloads import find_model

COUNTS = (8, 64, 1024)
"""Numbers of devices whose efficiency is written out."""

LEAST_OWN, LEAST_SHARED = 8, 4
"""Residuals of launches from which a line's own spread, or that of its panel, is known; else others of its execution lend theirs."""

ITEM_BYTES = {"bf16": 2, "fp16": 2}
"""Of an element on the wire, where a Run says in which type gradients travel."""


@dataclass(frozen=True)
class Line:
    """A job under a placement: its panel, its rows of the scaling table, and a forecast or `why` there is none.

    spread: whose launches the band is made of. forecast: at `ahead`, fitted to all counts; held_out: fitted without the largest.
    """

    panel: str
    rows: pd.DataFrame
    why: str = ""
    points: Points | None = None
    residuals: tuple[float, ...] = ()
    spread: str = ""
    links: Links | None = None
    forecast: Forecast | None = None
    held_out: HeldOut | None = None

    @cached_property
    def first(self) -> pd.Series:
        return self.rows.iloc[0]

    @property
    def placement(self) -> str:
        return str(self.first["placement"])

    def at(self, devices: int) -> int | None:
        """The place of a count in the forecast; None where the forecast does not go so far."""
        return self.forecast.devices.index(devices) if self.forecast and devices in self.forecast.devices else None


def ahead(line_counts: Sequence[int], most: int, one_process: bool, node: int) -> list[int]:
    """The counts of a forecast: 1 and powers of two to `most`, with those that were measured. One process ends with its node."""
    powers = [2**k for k in range(most.bit_length()) if 2**k <= most]
    last = min(node, most) if one_process else most
    return sorted({count for count in (*powers, *line_counts) if count <= max(last, *line_counts)})


def inside_latency_s(collectives: pd.DataFrame) -> float:
    """Seconds a message of the library's all-reduce inside a node: how the shortest grows with the 2(P-1) messages of a ring.

    What a call costs however many take part is none of a message's; it is part of what is fitted. Captured calls, which the
    host does not launch, where there are any.

    Args:
        collectives: of `all_reduce.points`. 0 where fewer than two counts were measured: a latency is then part of what is fitted, too.
    """
    own = collectives[(collectives["kind"] == "library") & (collectives["bytes"] <= SHORT_BYTES) & (collectives["devices"] > 1)]
    captured = own[own["execution"] == "captured"]
    times = (captured if len(captured) else own).groupby("devices")["time_s"].median()
    if len(times) < 2:
        return 0.0
    messages = 2 * (times.index.to_numpy(float) - 1)
    return max(0.0, float(np.polyfit(messages, times.to_numpy(float), 1)[0]))


def measured_links(gpu: str, collectives: pd.DataFrame, assumed: Links) -> Links | None:
    """`assumed` with the rates inside a node as measured on devices called `gpu`; None where no link was measured."""
    known = ceilings(gpu)
    if "device_link" not in known or known["device_link"].how != "measured":
        return None
    return replace(
        assumed,
        inside_bytes_per_s=known["device_link"].value,
        host_bytes_per_s=known["host_link"].value if "host_link" in known else float("inf"),
        inside_latency_s=inside_latency_s(collectives[collectives["gpu"] == gpu]),
    )


def demand_of_rows(rows: pd.DataFrame) -> Demand:
    """What a step of these rows' Runs moves (rows of the frame, one job under one placement).

    Raises:
        ValueError: no formula says it; the sentence says why.
    """
    first = rows.iloc[0]
    if pd.notna(first["all_reduce_spec"]) or pd.notna(first["model_parallel"]):
        raise ValueError(f"{first['placement']}: its all-reduce or its cut of the model is one that no formula here follows")
    placement, variables = find_placement(first["placement"]), find_model(first["workload"], first["model"]).variables
    tables = sum(variable.kind == "embedding" for variable in variables)
    looked_up = 0.0
    if tables and placement.travels == "rows":
        if first["unit"] != "words":
            raise ValueError(f"{first['placement']}: how many rows a step looks up is known for words only")
        looked_up = float((rows["padded_units"] / rows["timed_steps"] / rows["devices"]).mean()) / tables
    item = ITEM_BYTES.get(str(first["wire_dtype"]), 4) if pd.notna(first["wire_dtype"]) else 4
    return demand_of(placement, variables, looked_up, item)


def noise_of(steps: pd.DataFrame, keys: Sequence[str]) -> tuple[tuple[float, ...], ...]:
    """Each Record's timed steps over their mean, of the first rank. steps: of `frame.step_times`."""
    own = steps[steps["key"].isin(list(keys)) & steps["timed"] & steps["rank"].eq(0) & steps["step_time_s"].gt(0)]
    return tuple(tuple(group["step_time_s"] / group["step_time_s"].mean()) for _, group in own.groupby("key", sort=False))


def _points(rows: pd.DataFrame, steps: pd.DataFrame) -> Points:
    """The Points of a line's rows of the frame: a launch's step is all its time over all its timed steps."""
    launches = rows.groupby(["devices", "launch_id"])[["wall_s", "timed_steps"]].sum()
    times = launches["wall_s"] / launches["timed_steps"]
    counts = sorted({int(count) for count in rows["devices"]})
    of_counts = tuple(tuple(float(t) for t in times.loc[count]) for count in counts)
    one_process = bool(rows["processes"].iloc[0] == "one")
    keys = [] if one_process else list(rows.loc[rows["devices"] == 1, "key"])
    return Points(tuple(counts), of_counts, demand_of_rows(rows), noise_of(steps, keys), one_process)


def _too_few(counts: Sequence[int]) -> str:
    if 1 not in counts:
        return "not measured on one device, so there is no efficiency"
    if len(counts) <= PARAMETERS:
        fits = f"{len(counts)} counts fit {PARAMETERS} parameters with nothing left to test"
        return fits if len(counts) == PARAMETERS else "measured on one count only"
    return ""


def lines_of(frame: pd.DataFrame, steps: pd.DataFrame, collectives: pd.DataFrame, assumed: Links) -> list[Line]:
    """Every job and placement measured at two or more counts, weak scaling, that merges anything; independent replicas do not.

    Args:
        frame: of `load_frame`. steps: of `frame.step_times`, for the spread of replicas. collectives: of `all_reduce.points`.
        assumed: links between nodes; those inside come from the ceilings.
    """
    table = scaling_table(frame)
    table = table[(table["n"] > 0) & (table["scaling"] == "weak") & (table["placement"] != "independent")]
    ok = frame[(frame["status"] == "ok") & (frame["scaling"] == "weak")]
    own = [group for _, group in ok.groupby(list(POINT), dropna=False, sort=False)]
    by_key = {str(key): index for index, group in enumerate(own) for key in group["key"]}
    found = []
    for name, panel in panels(table):
        for _, rows in panel.groupby(["placement", "framework", "framework_version"], sort=False):
            rows = rows.sort_values("devices")
            if len(rows) < 2:
                continue
            records = pd.concat([own[by_key[keys.split(", ")[0]]] for keys in _ok_keys(rows, by_key)])
            found.append(_line(name, rows, records, steps, collectives, assumed))
    return _with_spread(found)


def _ok_keys(rows: pd.DataFrame, known: dict[str, int]) -> list[str]:
    """Of each point, a key that has a measurement."""
    return [next(key for key in keys.split(", ") if key in known) for keys in rows["keys"]]


def _line(name: str, rows: pd.DataFrame, records: pd.DataFrame, steps: pd.DataFrame, collectives: pd.DataFrame, assumed: Links) -> Line:
    first = rows.iloc[0]
    why = _too_few([int(count) for count in rows["devices"]])
    links = measured_links(str(first["gpu"]), collectives, assumed)
    if not why and links is None:
        why = "no link between its devices was measured"
    try:
        points = _points(records, steps)
    except ValueError as error:
        return Line(name, rows, why or str(error))
    return Line(name, rows, why, points, links=links)


def _with_spread(lines: Sequence[Line]) -> list[Line]:
    """Each line with residuals of launches: its own, else its panel's, else those of its machine, framework and execution."""
    pools: dict[tuple[str, ...], list[float]] = {}
    kinds = [_kind(line) for line in lines]
    own = [launch_residuals(line.points.times_s) if line.points else [] for line in lines]
    for line, kind, residuals in zip(lines, kinds, own, strict=True):
        for key in (("panel", line.panel), kind):
            pools.setdefault(key, []).extend(residuals)
    done = []
    for line, kind, residuals in zip(lines, kinds, own, strict=True):
        shared, wide = pools[("panel", line.panel)], pools[kind]
        if len(residuals) >= LEAST_OWN:
            chosen, spread = residuals, "own"
        elif len(shared) >= LEAST_SHARED:
            chosen, spread = shared, "its job"
        else:
            chosen, spread = wide, "other jobs"
        enough = len(chosen) >= LEAST_SHARED
        why = line.why or ("" if enough else "no launch was repeated from which a band could be made")
        done.append(replace(line, residuals=tuple(chosen) if enough else (), spread=spread if enough else "", why=why))
    return done


def forecast_lines(lines: Sequence[Line], most: int = 1024, draws: int = 1000, seed: int = 0) -> list[Line]:
    """The lines that can be, with their forecast to `most` devices and their held-out point; the others as they are.

    Bands are as wide as the held-out points of the other lines of the same machine, framework and form of execution ask for.
    """
    done = []
    for line in lines:
        if line.why or line.points is None or line.links is None:
            done.append(line)
            continue
        counts = ahead(line.points.devices, most, line.points.one_process, line.links.node)
        found = forecast(line.points, counts, line.links, line.residuals, draws, seed)
        done.append(replace(line, forecast=found, held_out=held_out(line.points, line.links, line.residuals, draws, seed)))
    return calibrated(done)


def _kind(line: Line) -> tuple[str, ...]:
    return str(line.first["machine"]), str(line.first["framework"]), str(line.first["execution"])


def calibrated(lines: Sequence[Line]) -> list[Line]:
    """Each line with bands widened by what the held-out points of the others of its kind ask for (`forecast_calibration.factor`)."""
    scores = [score(line.held_out) if line.held_out else math.nan for line in lines]
    kinds = [_kind(line) for line in lines]
    done = []
    for index, line in enumerate(lines):
        if line.forecast is None or line.held_out is None:
            done.append(line)
            continue
        others = [scores[place] for place, kind in enumerate(kinds) if place != index and kind == kinds[index]]
        by = factor(others)
        done.append(replace(line, forecast=replace(line.forecast, widening=by), held_out=line.held_out.widen(by)))
    return done
