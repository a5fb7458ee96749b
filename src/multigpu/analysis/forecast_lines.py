"""From Records to lines that can be forecast: a series with its counts, launches, spread and merge;
and their tables.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd

from multigpu.analysis.collectives import SHORT_BYTES
from multigpu.analysis.fields import JOB, SERIES
from multigpu.analysis.forecast import (
    PARAMETERS,
    HeldOutCount,
    Points,
    forecast,
    held_out,
    launch_residuals,
)
from multigpu.analysis.forecast_reduction import Demand, Links, NoFormula, demand_of
from multigpu.analysis.limits import ceilings
from multigpu.analysis.words import missing
from multigpu.placements import find_placement
from multigpu.placements.step_bytes import WIRE_BYTES
from multigpu.workloads import find_model

LEAST_OWN, LEAST_SHARED = 8, 4
"""Launches from which a line's own spread, or its job's, is known; else its execution lends one."""

GBIT = 1e9 / 8
"""Bytes/s of a Gbit/s."""


@dataclass(frozen=True)
class Series:
    """A series with its points, its forecast at all counts where one can be made, and what was held
    out; residuals: of launches.
    """

    rows: pd.DataFrame
    points: Points
    links: Links | None
    residuals: tuple[float, ...] = ()
    forecast: pd.DataFrame | None = None
    held_out: HeldOutCount | None = None

    @cached_property
    def first(self) -> pd.Series:
        return self.rows.iloc[0]

    @property
    def kind(self) -> tuple[str, ...]:
        return tuple(str(self.first[name]) for name in ("machine", "framework", "execution"))

    def with_forecast(self, most: int, draws: int) -> Self:
        measured = self.points.devices
        if (
            self.links is None
            or not self.residuals
            or measured[0] != 1
            or len(measured) <= PARAMETERS
        ):
            return self
        counts = ahead(measured, most, self.points.one_process, self.links.node)
        found = forecast(self.points, counts, self.links, self.residuals, draws)
        return replace(
            self, forecast=found, held_out=held_out(self.points, self.links, self.residuals, draws)
        )


def assumed_links(network_gbit: float, network_latency_us: float, node: int) -> Links:
    """The links between nodes as they are assumed; those inside are filled in from what was
    measured. ValueError: no rate.
    """
    if network_gbit <= 0:
        raise ValueError(
            f"a network carries something: network_gbit must be above 0, not {network_gbit}"
        )
    return Links(
        1.0,
        node=node,
        between_bytes_per_s=network_gbit * GBIT,
        between_latency_s=1e-6 * network_latency_us,
    )


NETWORK = assumed_links(network_gbit=400.0, network_latency_us=5.0, node=8)
"""Assumed beyond the devices of a node."""


def ahead(line_counts: Sequence[int], most: int, one_process: bool, node: int) -> list[int]:
    """The counts of a forecast: 1 and powers of two to `most`, with those that were measured. One
    process ends with its node.
    """
    powers = [2**k for k in range(most.bit_length()) if 2**k <= most]
    last = min(node, most) if one_process else most
    return sorted({count for count in (*powers, *line_counts) if count <= max(last, *line_counts)})


def inside_latency_s(collectives: pd.DataFrame) -> float:
    """Seconds a message of the library's all-reduce inside a node: how the shortest grows with the
    2(P-1) messages of a ring. What a call costs however many take part is part of what is fitted,
    and all latency is where fewer than two counts were measured: 0. Captured calls, which the host
    does not launch, speak where there are any.
    """
    own = collectives[
        (collectives["kind"] == "library")
        & (collectives["bytes"] <= SHORT_BYTES)
        & (collectives["devices"] > 1)
    ]
    captured = own[own["execution"] == "captured"]
    times = (captured if len(captured) else own).groupby("devices")["time_s"].median()
    if len(times) < 2:
        return 0.0
    messages = 2 * (times.index.to_numpy(float) - 1)
    return max(0.0, float(np.polyfit(messages, times.to_numpy(float), 1)[0]))


def measured_links(gpu: str, collectives: pd.DataFrame, assumed: Links) -> Links | None:
    """`assumed` with the rates inside a node as measured on devices called `gpu`; None where no
    link was measured.
    """
    known = ceilings(gpu)
    if "device_link" not in known or known["device_link"].how != "measured":
        return None
    host = known["host_link"].value if "host_link" in known else float("inf")
    latency_s = inside_latency_s(collectives[collectives["gpu"] == gpu])
    return replace(
        assumed,
        inside_bytes_per_s=known["device_link"].value,
        host_bytes_per_s=host,
        inside_latency_s=latency_s,
    )


def demand_of_point(row: Mapping[str, Any], units: float) -> Demand:
    """Return the bytes that a step of a point's Run moves; units: that a replica passes in a step,
    padding among them. NoFormula: nothing says it.
    """
    if not missing(row["all_reduce_spec"]) or not missing(row["model_parallel"]):
        raise NoFormula(
            f"{row['placement']}: its all-reduce or its cut of the model is one that no formula"
            " here follows"
        )
    placement = find_placement(str(row["placement"]))
    variables = find_model(str(row["workload"]), str(row["model"])).variables
    tables = sum(variable.kind == "embedding" for variable in variables)
    by_row = tables and placement.travels == "rows"
    if by_row and row["unit"] != "words":
        raise NoFormula(f"{placement.name}: how many rows a step looks up is known for words only")
    item_bytes = 4 if missing(row["wire_dtype"]) else WIRE_BYTES[str(row["wire_dtype"])]
    return demand_of(placement, variables, units / tables if by_row else 0.0, item_bytes)


def noise_of(
    steps: Mapping[str, Sequence[float]], keys: Sequence[str]
) -> tuple[tuple[float, ...], ...]:
    """Return the timed steps under each of these keys over their mean."""
    times = [np.array(own) for key, own in steps.items() if key in set(keys)]
    positive = [one[one > 0] for one in times]
    return tuple(tuple(one / one.mean()) for one in positive if len(one))


def _points(rows: pd.DataFrame, steps: Mapping[str, Sequence[float]]) -> Points:
    """The Points of a line's rows of the frame: a launch's step is all its time over all its timed
    steps.
    """
    launches = rows.groupby(["devices", "launch_id"])[["wall_s", "timed_steps"]].sum()
    times = (launches["wall_s"] / launches["timed_steps"]).groupby(level="devices").agg(tuple)
    one_process = bool(rows["processes"].iloc[0] == "one")
    noise = () if one_process else noise_of(steps, rows.loc[rows["devices"] == 1, "key"].tolist())
    units = float((rows["padded_units"] / rows["timed_steps"] / rows["devices"]).mean())
    first = {str(name): value for name, value in rows.iloc[0].items()}
    demand = demand_of_point(first, units)
    return Points(tuple(times.index.tolist()), tuple(times), demand, noise, one_process)


def lines_of(
    points: pd.DataFrame,
    frame: pd.DataFrame,
    steps: Mapping[str, Sequence[float]],
    collectives: pd.DataFrame,
    assumed: Links,
) -> list[Series]:
    """Every series measured at two or more counts, weak scaling, that merges by a formula known
    here; independent replicas merge nothing.
    points: chosen ones of a machine; frame: of the same; steps: by key, the timed steps of its
        Records (`read.timed_steps`); collectives: of `collectives_frame`; assumed: links between
        nodes.
    """
    table = points[
        (points["n"] > 0) & points["scaling"].eq("weak") & points["placement"].ne("independent")
    ]
    ok = frame[frame["status"].eq("ok")].drop_duplicates("key").set_index("key", drop=False)
    found = []
    numbers = table.groupby(list(SERIES), dropna=False, sort=False).ngroup()
    several = numbers.duplicated(keep=False)
    for _, series in table[several].groupby(numbers[several], sort=False):
        rows = series.sort_values("devices")
        own = ok.loc[[key for keys in rows["keys"] for key in keys.split(", ") if key in ok.index]]
        links = measured_links(str(rows["gpu"].iloc[0]), collectives, assumed)
        with suppress(NoFormula):
            found.append(Series(rows, _points(own, steps), links))
    return _with_spread(found)


def _with_spread(lines: Sequence[Series]) -> list[Series]:
    """Each line with residuals of launches: its own, else its job's, else those of its machine,
    framework and execution.
    """
    pools: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    jobs = [tuple(str(line.first[name]) for name in (*JOB, "execution")) for line in lines]
    own = [launch_residuals(line.points.times_s) for line in lines]
    for line, job, residuals in zip(lines, jobs, own, strict=True):
        for key in (job, line.kind):
            pools[key] += residuals
    done = []
    for line, job, residuals in zip(lines, jobs, own, strict=True):
        shared = pools[job] if len(pools[job]) >= LEAST_SHARED else pools[line.kind]
        chosen = residuals if len(residuals) >= LEAST_OWN else shared
        done.append(replace(line, residuals=tuple(chosen) if len(chosen) >= LEAST_SHARED else ()))
    return done
