"""Draw what a page of a comparison shows: the race, and where a step goes."""

from __future__ import annotations

import math
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING

import pandas as pd

from multigpu.analysis.compare import scaling
from multigpu.analysis.limits import model_of
from multigpu.analysis.parts import SIX_NAMES, shown_steps
from multigpu.analysis.points import Missing, where
from multigpu.analysis.read import read_study
from multigpu.analysis.show import table
from multigpu.records.trace import Part
from multigpu.spec.model import Model
from multigpu.user_model.fits import GIB, memories_of, room_of
from multigpu.user_model.parts import COMPUTING, INPUT, MERGING, REST, SHARED, traced_of
from multigpu.user_model.placed import USUAL
from multigpu.workloads import description_of

if TYPE_CHECKING:
    from multigpu.user_model.result import Result

PART_OF: dict[str, Part] = {
    INPUT: "input",
    COMPUTING: "computing",
    SHARED: "rest",
    MERGING: "merging",
    REST: "rest",
    **{name: part for part, name in SIX_NAMES.items()},
}
"""Which of the six parts a cause belongs to; any other is the wait for a slow rank."""


def shown_race(result: Result) -> str:
    """Draw each way's rate with its interval, as HTML: the leader and its rivals apart from those
    that are slower and those that train something else.
    """
    from multigpu.analysis.picture import shown
    from multigpu.analysis.plots import dots

    race = result.race
    if race is None or len(result.names) < 2:
        return ""
    near = {race.leader, *race.near}
    stands = dict.fromkeys(near, "ahead, or not told apart from it")
    stands |= dict.fromkeys(race.behind, "slower")
    rows = result.frame.sort_values("rate", ascending=False, kind="stable")
    rows = rows.assign(stands=[stands.get(name, "trains something else") for name in rows["name"]])
    caption = "Samples/s, batches ready; 95% intervals, hollow where there is a single run."
    picture = dots(rows, "rate", "name", "The race", caption, hue="stands", form="rate")
    return str(shown(picture, "race"))


def six_parts(result: Result, name: str) -> dict[Part, float]:
    """Return the seconds of each of the six parts of a way's step: of its trace, else of the
    differences that `parts` has, in which launching counts as computing; none: neither is known.
    """
    if (found := traced_of(result, result[name])) is not None:
        return found.parts
    told: dict[Part, float] = {}
    with suppress(Missing):
        for _, row in result.why_not_scaling(name).iterrows():
            part = PART_OF.get(row["cause"], "waiting")
            told[part] = told.get(part, 0.0) + float(row["ms"]) / 1e3
    return told


def shown_parts(result: Result) -> str:
    """Draw the six parts of a step as given, of one device and of the fastest, as HTML."""
    chosen = [result.base, result.chosen(None)] if result.names else []
    steps = {}
    for name in dict.fromkeys(one.name for one in chosen if one is not None):
        untraced = traced_of(result, result[name]) is None
        how = " (by differences, not traced: launching is within computing)" if untraced else ""
        if found := six_parts(result, name):
            steps[f"{name}{how}"] = found
    return shown_steps(steps).html


def shown_memory(result: Result) -> str:
    """Draw what a step of each way needs of its fullest device, as HTML bars with a line where the
    device is full: as forecast, and on GPUs as measured; nothing where neither is known.
    """
    memories, rows = memories_of(result.runs, result.described), []
    for name in result.names:
        run, told = result[name].run, list[tuple[str, float]]()
        if name in memories:
            told.append(("forecast", memories[name].peak(run.batch_size) / GIB))
        # on a CPU the peak of a process holds all that it imported, and never falls
        if run.device_type == "cuda" and not pd.isna(result[name].row["peak_memory_gib"]):
            told.append(("measured", float(result[name].row["peak_memory_gib"])))
        rows += [(name, which, gib) for which, gib in told]
    if not rows:
        return ""
    run = result.runs[-1]
    room = room_of(result.records[0].machine, run.device_type, run.devices) / GIB
    scale = 1.05 * max(room, *(gib for _, _, gib in rows))
    bars = "".join(
        f"<tr><td>{escape(name)}</td><td>{which}</td><td class='number'>{gib:.3g}</td>"
        f"<td class='room'><div class='{which}' style='width:{100 * gib / scale:.2f}%'></div>"
        f"<i style='left:{100 * room / scale:.2f}%'></i></td></tr>"
        for name, which, gib in rows
    )
    device = "GPU" if run.device_type == "cuda" else "process's share of this computer's memory"
    return (
        f"<table class='memory'><tr><th>way</th><th></th><th>GiB</th>"
        f"<th>the line: a {device}, {room:.3g} GiB</th></tr>{bars}</table>"
    )


NEAR = 4.0
"""A published job is near whose parameters, and operations of a sample, are within so many times
the user's.
"""


def apart(own: Model, row: pd.Series) -> tuple[float, float]:
    """How far a published row's model is in parameters and operations: logarithms of ratios."""
    model, length = model_of(row), row["sequence_length"]
    operations = model.forward_flops_per_unit * (
        (model.context or 1) if pd.isna(length) else int(length)
    )
    return abs(math.log(model.parameters / own.parameters)), abs(
        math.log(operations / own.forward_flops_per_unit)
    )


def beside(result: Result) -> pd.DataFrame:
    """Each placement's share of perfect scaling, here and of the nearest published job on as many
    GPUs: a row a placement and a place.

    Columns: name, place ("here", or model, precision, batch and machine of the job), efficiency
        with _low and _high, n. The nearest job
    differs least in parameters and operations, both within `NEAR` times; of several, that of most
    placements. Missing: there is none.
    """
    run = next((run for run in result.runs if run.devices > 1), result.runs[0])
    study = scaling(
        where(read_study().everywhere, framework=run.framework, devices=[1, run.devices])
    )
    rows = study[
        study["devices"].eq(run.devices)
        & study["execution"].isin(USUAL)
        & study["efficiency_best"].notna()
        & study["n"].gt(1)
    ]
    rows = rows[rows["placement"].isin(result.names)].reset_index(drop=True)
    far = pd.DataFrame(
        [apart(description_of(run), row) for _, row in rows.iterrows()],
        columns=["parameters", "operations"],
    )
    rows = rows.assign(apart=far.sum(axis=1))[(far <= math.log(NEAR)).all(axis=1)]
    if rows.empty:
        raise Missing(
            f"no published job on {run.devices} GPUs has about as many parameters and operations a"
            " sample as this model"
        )
    job = [
        "apart",
        "machine",
        "model",
        "batch_size",
        "precision",
        "layout",
        "optimizer",
        "inputs",
        "scaling",
        "framework_version",
    ]
    rows["met"] = rows.groupby(job, dropna=False)["placement"].transform("nunique")
    rows = rows.sort_values(["apart", "met", "n"], ascending=[True, False, False], kind="stable")
    there = rows.merge(rows.iloc[[0]][job], on=job).drop_duplicates("placement")
    place = "{model}, {precision}, {batch_size} per GPU, {machine}".format(**there.iloc[0])
    ends = ("", "_low", "_high")
    there = there.assign(
        name=there["placement"],
        place=place,
        **{f"efficiency{end}": there[f"efficiency_best{end}"] for end in ends},
    )
    here = result.frame[result.frame["name"].isin(there["name"])]
    here = here.assign(
        place="here", **{f"efficiency{end}": here[f"speedup{end}"] / run.devices for end in ends}
    )
    return pd.concat([here, there])[
        ["name", "place", *(f"efficiency{end}" for end in ends), "n"]
    ].reset_index(drop=True)


def shown_beside(result: Result) -> str:
    """This machine beside the nearest published job, as HTML: figure and table; "": none near."""
    try:
        rows = beside(result)
    except Missing:
        return ""
    # whatever draws takes seconds to load, and few models are near
    from multigpu.analysis.picture import shown
    from multigpu.analysis.plots import dots

    title, caption = (
        "Of perfect scaling, here and on a published machine",
        "From one device at its best; 95% intervals over repeats.",
    )
    picture = dots(
        rows,
        "efficiency",
        "name",
        title,
        caption,
        hue="place",
        form="percent",
        xlabel="of perfect scaling",
        line_at=1,
    )
    columns = "placement = name | of perfect scaling = efficiency:percent interval | n"
    nearest = f"Nearest in parameters and operations of a sample: {rows['place'].iloc[-1]}."
    return (
        "<h2>Your machine beside"
        f" ours</h2>{shown(picture, 'beside')}{table(rows, columns, by='place', note=nearest)}"
    )
