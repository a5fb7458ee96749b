"""A user's model on this machine beside the published job that is nearest to it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from multigpu.analysis.compare import scaling
from multigpu.analysis.points import Missing, where
from multigpu.analysis.read import read_study
from multigpu.own.placed import USUAL
from multigpu.workloads import find_model
from multigpu.workloads.base import Model

if TYPE_CHECKING:
    from multigpu.own.result import Result

NEAR = 4.0
"""A published job is near whose parameters, and operations of a sample, are within so many times the user's."""


def times_apart(own: Model, row: pd.Series) -> tuple[float, float]:
    """How many times more (or fewer) parameters, and operations of a sample, a published row's model has."""
    model = find_model(row["workload"], row["model"])
    length = 1 if pd.isna(row["sequence_length"]) else int(row["sequence_length"])
    ratios = (model.parameters / own.parameters, length * model.forward_flops_per_unit / own.forward_flops_per_unit)
    return max(ratios[0], 1 / ratios[0]), max(ratios[1], 1 / ratios[1])


def beside(result: Result) -> pd.DataFrame:
    """Each placement's share of perfect scaling, here and of the nearest published job on as many GPUs: a row a placement and a place.

    Columns: name, place ("here", or model, precision, batch and machine of the job), efficiency with _low and _high, n. The nearest job
    differs least in parameters and operations of a sample, both of which are within `NEAR` times the model's; of several, that of most
    placements with repeats.

    Raises:
        Missing: no published job is near, or none of its placements was measured here.
    """
    run = next((run for run in result.runs if run.devices > 1), result.runs[0])
    study = scaling(where(read_study().everywhere, framework=run.framework, devices=[1, run.devices]))
    rows = study[study["devices"].eq(run.devices) & study["execution"].isin(USUAL) & study["efficiency_best"].notna() & study["n"].gt(1)]
    rows = rows[rows["placement"].isin(result.names)].reset_index(drop=True)
    apart = pd.DataFrame([times_apart(run.description, row) for _, row in rows.iterrows()], columns=["parameters", "operations"])
    rows["apart"] = [math.log(one) + math.log(other) for one, other in zip(apart["parameters"], apart["operations"], strict=True)]
    rows = rows[(apart <= NEAR).all(axis=1)]
    if rows.empty:
        raise Missing(f"no published job on {run.devices} GPUs has about as many parameters and operations a sample as this model")
    job = ["apart", "machine", "model", "batch_size", "precision", "layout", "optimizer", "inputs", "scaling", "framework_version"]
    rows["met"] = rows.groupby(job, dropna=False)["placement"].transform("nunique")
    rows = rows.sort_values(["apart", "met", "n"], ascending=[True, False, False], kind="stable")
    first = rows.iloc[[0]][job]
    there = rows.merge(first, on=job).drop_duplicates("placement")
    place = "{model}, {precision}, {batch_size} per GPU, {machine}".format(**there.iloc[0])
    ends = ("", "_low", "_high")
    there = there.assign(name=there["placement"], place=place, **{f"efficiency{end}": there[f"efficiency_best{end}"] for end in ends})
    here = result.frame[result.frame["name"].isin(there["name"])]
    here = here.assign(place="here", **{f"efficiency{end}": here[f"speedup{end}"] / run.devices for end in ends})
    return pd.concat([here, there])[["name", "place", *(f"efficiency{end}" for end in ends), "n"]].reset_index(drop=True)
