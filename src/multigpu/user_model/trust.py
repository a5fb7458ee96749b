"""Which figures of a comparison cannot be believed, and why: each is said beside its figure, and
none of them leads.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from multigpu.analysis.estimate import TOO_FEW, Estimate, estimate
from multigpu.placements import find_placement
from multigpu.placements.row import Placement
from multigpu.records.record import Record
from multigpu.spec.run import Run
from multigpu.workloads import description_of, optimizer_of

NEAR = 1.05
"""A figure may lie above what can be reached by this factor before it is called impossible: clocks
and cores are not alike to the last percent.
"""

NOT_ADDING_UP = 1.1
"""From this factor on a value above what can be reached is said, whatever its interval."""

WIDE = 2.0
"""An interval whose ends are further apart than this factor is one of too few repeats."""

DISTURBED = ("disturbed", "throttled")
"""How the flags of a Record begin beside which something else took its cores or its GPU."""

UPDATE_PASSES = {"sgd": 5, "adam": 7, "adamw": 7}
"""How often an update reads or writes each number, gradients and states among them."""

UPDATE_BYTES_PER_S = {"cpu": 2e9, "cuda": 2e11}
UPDATE_CALL_S = 5e-5
"""Slow memory and a slow call for each variable: an update takes less, so what a placement is
said to reach by dividing it is no less than it can.
"""


class Doubt(NamedTuple):
    """Why a figure is not believed. short: beside it; sentence: what a reader should know of it."""

    short: str
    sentence: str


def update_share(run: Run, step_s: float) -> float:
    """The share of one device's step that its update takes at most, from the numbers it touches."""
    model = description_of(run)
    touched = 4.0 * model.parameters * UPDATE_PASSES[optimizer_of(run).name]
    took_s = touched / UPDATE_BYTES_PER_S[run.device_type]
    took_s += UPDATE_CALL_S * len(model.variables)
    return min(1.0, took_s / step_s)


def divides_update(row: Placement) -> bool:
    """Whether a device updates a part of the variables alone, or does not wait for the update."""
    return row.staged or row.update not in ("replica", "gpu0") or row.embeddings == "balanced"


def reach(row: Placement, devices: int, share: float) -> float:
    """How many times one device's rate a placement can reach by itself: as often as there are
    devices; where they divide the update (`share` of one device's step), or compute beside it, by
    as much more as their step is shorter without the rest of it.
    """
    if not divides_update(row):
        return float(devices)
    spared = share if row.staged else share * (1 - 1 / devices)
    return math.inf if spared >= 1 else devices / (1 - spared)


def is_wide(figure: Estimate) -> bool:
    """Whether an interval is too wide to say a figure."""
    return figure.known and (figure.low <= 0 or figure.high / figure.low > WIDE)


def figure_text(figure: Estimate, form: str) -> str:
    """A figure with its interval, or that it is a single run, or of too few repeats."""
    if is_wide(figure):
        return f"{figure:{form}} ({TOO_FEW})"
    if figure.low == figure.high:  # by itself: one device's times one device
        return f"{figure:{form}}"
    return f"{figure:{form} interval}"


def disturbances(record: Record) -> list[str]:
    """List what disturbed this Run, in words."""
    flags = record.measurement.flags if record.measurement else []
    return [flag for flag in flags if flag.startswith(DISTURBED)]


def undisturbed(records: Sequence[Record]) -> list[Record]:
    """The Records beside which nothing else worked; all of them where each was disturbed."""
    return [record for record in records if not disturbances(record)] or list(records)


def cores_of_device(record: Record) -> float:
    """Threads that one device of a Run on a CPU computes with."""
    assert record.measurement
    one_process = record.run.processes == "one"
    return record.measurement.host_threads / (record.run.devices if one_process else 1)


def doubts_of(
    row: Any, records: Sequence[Record], base: Any, of_base: Sequence[Record]
) -> list[Doubt]:
    """Why the figures of a placement (a row of the comparison) are not believed; none: they are.

    Args:
        records: those that the row is of. base: the row of one device, with its Records; None: it
            was not measured.
    """
    run, found = records[0].run, list[Doubt]()
    if all(map(disturbances, records)):
        why = max(text for record in records for text in disturbances(record))
        found.append(Doubt("disturbed", f"every repeat was disturbed ({why})"))
    rate = estimate(row, "rate")
    if is_wide(rate):
        found.append(
            Doubt(
                TOO_FEW,
                f"its {row['n']} repeats are too few to say its rate: they allow"
                f" {Estimate(rate.low):rate} to {Estimate(rate.high, unit=rate.unit):rate}",
            )
        )
    if base is None or run.devices == 1 or pd.isna(row["speedup"]):
        return found
    limit = reach(
        find_placement(run.placement), run.devices, update_share(run, float(base["step_time_s"]))
    )
    speedup = estimate(row, "speedup")
    least = speedup.low if speedup.known else speedup.value
    if least > NEAR * limit:
        found.append(
            Doubt(
                "impossible",
                f"{Estimate(speedup.value):times} times one device is more than the"
                f" {Estimate(limit):times} that {run.devices} devices can reach by themselves: one"
                " of the two was not measured as it runs by itself",
            )
        )
    elif speedup.value > NOT_ADDING_UP * limit:
        found.append(
            Doubt(
                "parts do not add up",
                f"computing takes {Estimate(float(base['step_time_s'])):ms} on one device and the"
                f" whole step {Estimate(float(row['step_time_s'])):ms} here",
            )
        )
    if run.device_type == "cpu":
        own, one = cores_of_device(records[0]), cores_of_device(of_base[0])
        if own > NEAR * one:
            found.append(
                Doubt(
                    "more cores",
                    f"each device had {own:g} cores and one device alone {one:g}, so its times of"
                    " one device are not of like with like",
                )
            )
    return found
