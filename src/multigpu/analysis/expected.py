"""Estimate the rate of a point that nobody measured: from its series on other counts of devices,
from one device, or from the model alone.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.collectives import collectives_frame
from multigpu.analysis.estimate import Estimate
from multigpu.analysis.fields import CHANGES
from multigpu.analysis.forecast import PARAMETERS, forecast, held_out, widened, widening_of
from multigpu.analysis.forecast_lines import NETWORK, demand_of_point, lines_of, measured_links
from multigpu.analysis.forecast_reduction import Links, NoFormula, reduction_seconds
from multigpu.analysis.limits import bound_units_per_s, bounds
from multigpu.analysis.merge_cost import MergeCost, cost_of, kind_of, merged
from multigpu.analysis.points import usual, where
from multigpu.analysis.query import measure_command, plainest, run_of
from multigpu.analysis.read import Study, machines_of
from multigpu.analysis.words import devices_text, joined, number, way_words
from multigpu.build import build_run
from multigpu.spec.errors import Refused
from multigpu.spec.run import Run
from multigpu.workloads import description_of, workloads

KERNELS = ("recurrence", "batch_norm", "stem", "cross_entropy", "layout")
"""Fields that say which kernels compute a step, whatever merges it."""

OTHERS = tuple(name for name in CHANGES if name not in KERNELS)

DRAWS = 200
"""Of the forecasts that only say how wide bands must be."""

DEFAULTS = {"placement": "ddp", "batch_size": 32}
"""Of a Run that names neither."""


@dataclass(frozen=True)
class Expected:
    """A forecast. rate: units/s, with its band; basis: what it rests on, in words; scaling: rate
    over that of as many single devices; NaN where that is not known.
    """

    run: Run
    rate: Estimate
    scaling: float
    basis: str

    def text(self) -> str:
        """The forecast in a sentence, and the command that measures it."""
        way = way_words(self.run.model_dump())
        on = devices_text(self.run.devices, self.run.device_type)
        if self.rate.known:
            ends = f"{Estimate(self.rate.low):rate} to {Estimate(self.rate.high):rate}"
        else:
            ends = "its band is not known"
        scaling = ""
        if self.run.devices > 1:
            if math.isnan(self.scaling):
                scaling = "; how it scales is not known, and small models lose on several devices"
            else:
                scaling = f", {Estimate(self.scaling):percent} of perfect scaling"
        return (
            f"Forecast, not a measurement: {way} should train {self.rate:rate} ({ends}) on"
            f" {on}{scaling}, from {self.basis}.\nThis measures it: `{measure_command(self.run)}`"
        )

    def as_dict(self) -> dict[str, Any]:
        """The forecast for a program."""
        figures = {
            "rate": self.rate.value,
            "rate_low": number(self.rate.low),
            "rate_high": number(self.rate.high),
            "scaling": number(self.scaling),
        }
        return figures | {
            "unit": self.rate.unit,
            "basis": self.basis,
            "measure": measure_command(self.run),
        }


def expected(
    study: Study, fields: Mapping[str, Any], machine: str | None = None
) -> Expected | None:
    """Return the rate that a point with these fields should reach on a machine (unless named, the
    richest in Records that has something alike); None where no model is named, scaling is strong,
    such a Run cannot be, or no machine has links and ceilings that were measured.
    """
    known = machines_of(study.everywhere)["machine"]
    names = [name for name in known if machine in (None, name)]
    workload = fields.get("workload") or next(
        (w.name for w in workloads().values() if fields.get("model") in w.models), None
    )
    if not fields.get("model") or workload is None or fields.get("scaling", "weak") != "weak":
        return None
    measured = set(where(study.everywhere, model=fields["model"])["machine"])
    names.sort(key=lambda name: name not in measured)
    wanted = {"workload": workload, **fields}
    return next((found for name in names if (found := _on(study.on(name), dict(wanted)))), None)


def _on(study: Study, wanted: dict[str, Any]) -> Expected | None:
    """The forecast as one machine's Records have it; None where they hold nothing alike, or such a
    Run cannot be.
    """
    points = study.points
    collectives = where(
        collectives_frame(study.data / "collectives"),
        status="ok",
        dtype="fp32",
        machine=study.machine,
    )
    links = measured_links(str(points["gpu"].iloc[0]), collectives, NETWORK)
    precisions = points.loc[points["workload"].eq(wanted["workload"]), "precision"].mode()
    if links is None or precisions.empty:
        return None
    devices = int(wanted.pop("devices", 1))
    same = where(points[points["n"] > 0], **wanted, scaling="weak")
    if "placement" not in wanted and len(plain := where(same, placement=DEFAULTS["placement"])):
        same = plain
    try:
        found = _of_series(study, same, collectives, devices)
        wanted = DEFAULTS | {
            "precision": precisions.iloc[0],
            "device_type": points["device_type"].iloc[0],
            **wanted,
            "devices": devices,
        }
        run = build_run(**wanted)
        return (
            found
            or from_one_device(run, where(study.everywhere, gpu=points["gpu"].iloc[0]), links)
            or _of_model(run, points, study.frame, links)
        )
    except (Refused, NoFormula):
        return None


def _of_series(
    study: Study, same: pd.DataFrame, collectives: pd.DataFrame, devices: int
) -> Expected | None:
    """From the plainest series that was measured on one device and on more; others of its kind lend
    the spread of their launches.
    """
    if same.empty:
        return None
    alike = where(
        study.points,
        scaling="weak",
        **{name: same[name].unique().tolist() for name in ("placement", "framework", "execution")},
    )
    lines = lines_of(alike, study.frame, study.steps, collectives, NETWORK)
    known = {
        line.first["keys"]: line for line in lines if line.links and line.points.devices[0] == 1
    }
    if not (usable := {keys: line for keys, line in known.items() if keys in set(same["keys"])}):
        return None
    line = usable[
        plainest(pd.DataFrame([line.first for line in usable.values()]), {}).iloc[0]["keys"]
    ]
    assert line.links is not None
    tested = [
        held_out(other.points, other.links, other.residuals, DRAWS)
        for other in known.values()
        if other.links and other.residuals and len(other.points.devices) > PARAMETERS
    ]
    table = forecast(line.points, [devices], line.links, line.residuals)
    found = widened(table, widening_of(tested)).iloc[0]
    units = devices * float(line.first["rate"] * line.first["step_time_s"])
    middle, low, high = (
        units / float(found[name]) for name in ("step_s", "step_s_high", "step_s_low")
    )
    spread = line.rows[["rate_low", "rate_high"]].div(line.rows["rate"], axis=0)
    lows = [low, middle * spread["rate_low"].min()]
    highs = [high, middle * spread["rate_high"].max()]
    if not tested:  # then its band is not narrower than one that rests on one device
        cost = _cost(line.first, str(line.first["execution"]), str(line.first["processes"]))
        lows, highs = [*lows, middle / cost.high], [*highs, middle / cost.low]
    low, high = float(np.nanmin(lows)), float(np.nanmax(highs))
    rate = Estimate(middle, low, high, unit=f"{line.first['unit']}/s")
    counts = joined([str(count) for count in line.points.devices])
    run = build_run(**(run_of(line.first).model_dump(exclude_defaults=True) | {"devices": devices}))
    return Expected(
        run,
        rate,
        float(found["efficiency"]),
        f"its steps on {counts} devices of {study.machine} and the measured speed of their links",
    )


def _cost(one: pd.Series, execution: str, processes: str) -> MergeCost:
    """Return what merging costs beside a point of one device."""
    return cost_of(execution, processes, float(one["jitter_s"] / one["step_time_s"]))


def from_one_device(run: Run, every: pd.DataFrame, links: Links) -> Expected | None:
    """Its step on one device, and what merging costs steps of its form (`merge_cost`). A batch in
    parts that was never measured takes as many steps of so small a batch.
    """
    job = run.values_of("workload", "model", "inputs", "precision", "framework", "execution")
    if run.sequence_length is not None:  # otherwise the usual length, which points name
        job["sequence_length"] = run.sequence_length
    alike = usual(where(every, **job, scaling="weak"))
    alike = alike[alike["n"] > 0]
    kernels = run.values_of(*KERNELS)
    alone = where(alike, devices=1, **kernels)
    in_parts = where(alone, micro_steps=run.micro_steps)
    alone, parts = (
        (where(alone, micro_steps=None), run.micro_steps or 1) if in_parts.empty else (in_parts, 1)
    )
    batch = run.batch_size / parts
    exact = alone["batch_size"].eq(batch)
    alone = alone[
        exact if exact.any() or not any(kernels.values()) else alone["batch_size"] <= 2 * batch
    ]
    if alone.empty:
        return None
    nearest = by_nearness(alone, run, batch).iloc[0]
    share = run.batch_size / float(nearest["batch_size"])
    step_s = share * float(nearest["step_time_s"])
    noise = number(nearest["rate_high"] / nearest["rate"]) or 1.0
    ends_s = (step_s, step_s * max(noise, parts / share), step_s / noise)
    units = share * float(nearest["rate"] * nearest["step_time_s"])
    rate = _merged(
        run, units, ends_s, links, _cost(nearest, run.execution, run.processes), nearest["unit"]
    )
    basis = f"its step on one device of {nearest['machine']}"
    basis += "" if share == 1 else f" with a batch of {nearest['batch_size']}"
    if run.devices > 1:
        basis += ", the measured speed of its links and what merging costs other jobs"
    return Expected(run, rate, rate.value * step_s / (units * run.devices), basis)


def _merged(
    run: Run, units: float, one_s: tuple[float, ...], links: Links, cost: MergeCost, unit: str
) -> Estimate:
    """Return the rate of a Run whose replica takes `one_s` (middle, longest, shortest) for its
    units.
    """
    row = run.model_dump() | {"unit": unit, "wire_dtype": None}  # `merge_cost` knows 32 bits alone
    demand = demand_of_point(row, units)
    merges = run.micro_steps or 1 if run.micro_sync == "each" else 1
    merge_s = merges * sum(reduction_seconds(demand, run.devices, links))
    kind = kind_of(run.placement, run.bucket_send)
    return merged(units, run.devices, one_s, merge_s, kind, cost, f"{unit}/s")


def by_nearness(points: pd.DataFrame, run: Run, batch: float | None = None) -> pd.DataFrame:
    """The points, those first that differ from a Run in fewest fields, then least in batch (unless
    given, its own), then by repeats.
    """
    others = points[list(OTHERS)].astype(object)
    apart = (
        others.where(others.notna(), None)
        .astype(str)
        .ne([str(getattr(run, name)) for name in OTHERS])
        .sum(axis=1)
    )
    factor = np.abs(np.log(points["batch_size"].astype("float64") / (batch or run.batch_size)))
    order = pd.DataFrame({"apart": apart, "factor": factor, "seldom": -points["n"]}).sort_values(
        ["apart", "factor", "seldom"]
    )
    return points.loc[order.index]


def _of_model(run: Run, points: pd.DataFrame, rows: pd.DataFrame, links: Links) -> Expected | None:
    """One device as this model, or else others, use the machine's ceilings; no step is shorter than
    any of it that was launched so, and the band is that in which 95% of what was measured so lies;
    of what the merge takes all, none or, in the middle, half is hidden.
    """
    launched = where(rows, devices=1, status="ok", framework=run.framework, execution=run.execution)
    ones, akin = where(launched, precision=run.precision), where(launched, workload=run.workload)
    ceiling = bound_units_per_s(
        description_of(run), str(points["gpu"].iloc[0]), run.precision, 1, 1.0
    ).units_per_s
    if ones.empty or akin.empty or not math.isfinite(ceiling):
        return None
    ones = ones.merge(bounds(ones)[["key", "bound", "share_of_bound"]], on="key").dropna(
        subset="bound"
    )
    ones = ones.assign(ideal_s=ones["units"] / ones["timed_steps"] / ones["bound"])
    shares = ones.groupby("model")["share_of_bound"].median()
    share = float(shares.get(run.model, shares.median()))
    units = run.batch_size * float(
        (akin["units"] / akin["timed_steps"] / akin["batch_size"]).astype("float64").median()
    )
    least_s = launched.groupby("model")["step_time_s"].min()
    if run.model in least_s:
        floor_s, floors_s = least_s[run.model], ones["model"].map(least_s)
    else:
        (floor_s,) = _floors_s(ones, run.workload, run.model, pd.Series([units / ceiling]))
        each: Any = ones.groupby(["workload", "model"])["ideal_s"]
        floors_s = pd.concat([_floors_s(ones, job, model, steps) for (job, model), steps in each])
    told_s = np.fmax(ones["ideal_s"] / shares.median(), floors_s).astype("float64")
    off = np.log(ones["step_time_s"] / told_s).groupby([ones["model"], ones["batch_size"]])
    slower, faster = off.median().quantile([0.975, 0.025])
    one_s = max(units / (share * ceiling), floor_s) * np.exp([0.0, slower, faster])
    cost = cost_of(run.execution, run.processes)
    rate = _merged(run, units, tuple(one_s), links, cost, description_of(run).unit)
    basis = (
        f"its operations and bytes, and how {ones['model'].nunique()} models use the ceilings of"
        f" {points['machine'].iloc[0]}"
    )
    return Expected(run, rate, rate.value * float(one_s[0]) / (units * run.devices), basis)


def _floors_s(ones: pd.DataFrame, workload: str, model: str, ideal_s: pd.Series) -> pd.Series:
    """For each ideal step of a model the shortest step of other models of its workload whose own
    ideal is no longer (a larger model's step is no floor of a smaller one's), or else of any.
    """
    other = ones[ones["workload"].eq(workload) & ones["model"].ne(model)].sort_values("ideal_s")
    shortest = np.minimum.accumulate([np.inf, *other["step_time_s"]])
    found = pd.Series(shortest[np.searchsorted(other["ideal_s"], ideal_s, "right")], ideal_s.index)
    return found.mask(np.isinf(found), ones["step_time_s"].min())
