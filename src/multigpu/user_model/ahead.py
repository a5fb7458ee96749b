"""Forecast a comparison on more devices than were measured."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from multigpu import paths
from multigpu.analysis.collectives import collectives_frame
from multigpu.analysis.estimate import Estimate
from multigpu.analysis.forecast import Points, launch_residuals
from multigpu.analysis.forecast import forecast as fitted
from multigpu.analysis.forecast_lines import NETWORK, measured_links
from multigpu.analysis.forecast_reduction import Demand, Links, demand_of, reduction_seconds
from multigpu.analysis.merge_cost import cost_of, kind_of, merged
from multigpu.analysis.points import Missing, where
from multigpu.placements import find_placement
from multigpu.user_model.parts import step_of
from multigpu.user_model.placed import Placed, called
from multigpu.user_model.rates import on_ready
from multigpu.workloads import description_of

if TYPE_CHECKING:
    from multigpu.user_model.result import Result


def forecast(result: Result, devices: int, name: str | None) -> Estimate:
    """Samples/s on so many devices like these in one machine, on batches that are ready there,
    fitted to one device and the placement; of one GPU by published links.

    Its interval is no narrower than that of any figure it rests on, and it has none where one of
    these is a single run.

    Raises:
        Missing: there is nothing to fit, or what there is cannot be believed; the sentence says
            why.
    """
    if name is None and result.is_alone:
        raise Missing("a forecast needs a placement beside one device, and none was measured")
    several = result.fastest or result.ahead_of_several
    placed = result[name] if name else several or result.best or result.chosen(None)
    run = placed.run
    alone = called(run.model_copy(update={"devices": 1}))
    if alone not in result.names:
        raise Missing(f"a forecast needs {alone} beside {placed.name}: measure both")
    for needed in (alone, placed.name):
        if wrong := [d for d in result.doubts[needed] if d.short == "impossible"]:
            raise Missing(f"no forecast rests on {needed}: {wrong[0].sentence}")
    tables = result.described.tables
    rows = sum(table.ids for table in tables.values()) * run.batch_size / max(1, len(tables))
    try:
        demand = demand_of(find_placement(run.placement), description_of(run).variables, rows)
    except ValueError as error:
        raise Missing(str(error)) from None
    if run.devices == 1:
        ahead = _by_links(result, placed, devices, demand)
    else:
        ahead = _by_steps(result, placed, alone, devices, demand)
    return as_wide_as(ahead, result[alone].rate, placed.rate)


def as_wide_as(ahead: Estimate, *data: Estimate) -> Estimate:
    """A forecast whose interval is, in logarithms and to either side, no narrower than that of any
    figure it rests on; without one where any of these is a single run.
    """
    if not ahead.known or not all(figure.known for figure in data):
        return Estimate(ahead.value, math.nan, math.nan, ahead.keys, ahead.unit)
    low = min([ahead.low / ahead.value, *(figure.low / figure.value for figure in data)])
    high = max([ahead.high / ahead.value, *(figure.high / figure.value for figure in data)])
    return Estimate(ahead.value, ahead.value * low, ahead.value * high, ahead.keys, ahead.unit)


def _by_links(result: Result, placed: Placed, devices: int, demand: Demand) -> Estimate:
    run = placed.run
    gpu = run.device_type == "cuda" and result.records[0].machine.gpus[0]
    if gpu:
        links = measured_links(
            gpu, where(collectives_frame(paths.COLLECTIVES), status="ok", dtype="fp32"), NETWORK
        )
    else:
        links = None
    if links is None:
        raise Missing("no links between such devices were measured: compare on two of them")
    one_s = step_of(result, placed.name)
    merge_s = sum(reduction_seconds(demand, devices, links))
    ends = (one_s.high, one_s.low) if one_s.known else (one_s.value, one_s.value)
    cost, kind = cost_of(run.execution, run.processes), kind_of(run.placement)
    return merged(run.batch_size, devices, (one_s.value, *ends), merge_s, kind, cost, "samples/s")


def _by_steps(result: Result, placed: Placed, alone: str, devices: int, demand: Demand) -> Estimate:
    steps = [_steps(result, alone), _steps(result, placed.name)]
    known = Points((1, placed.run.devices), (steps[0], steps[1]), demand)
    links = Links(1.0, node=devices)
    found = fitted(known, [devices], links, launch_residuals(steps)).iloc[0]
    rate, low, high = (
        placed.run.batch_size * devices / float(found[name])
        for name in ("step_s", "step_s_high", "step_s_low")
    )
    return Estimate(rate, low, high, placed.rate.keys, "samples/s")


def _steps(result: Result, name: str) -> tuple[float, ...]:
    """Of each Record, a step on batches that are on the device already, s."""
    ready = [on_ready(record, result.described.batch_s) for record in result.measured(name)]
    return tuple(
        record.measurement.wall_s / record.run.timed_steps for record in ready if record.measurement
    )
