"""Judge forecasts by what was measured: mean error, order of placements, share in the band."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pandas as pd

from multigpu.analysis.forecast_lines import Series, held_out_table
from multigpu.analysis.merge_cost import (
    form_of,
    held_without_itself,
    kind_of,
    left_out,
)

JOB = ("model", "batch_size", "form", "devices")
"""What placements share whose order a forecast tells."""


def from_one(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return forecasts from one device (`merge_cost.merges`): costs learned on two devices of all
    other models, bands from their errors.

    Returns pairs with forecast_s, error (forecast step over measured, less 1), inside.
    """
    ratios = left_out(pairs)
    return pairs.assign(
        forecast_s=pairs["step_s"] / ratios,
        error=1 / ratios - 1,
        inside=held_without_itself(pairs, ratios),
    )


def from_several(lines: Sequence[Series]) -> pd.DataFrame:
    """Return forecasts of the largest count from the smaller ones (`forecast_lines`), in the same
    columns.
    """
    table = held_out_table(lines)
    if table.empty:
        return table
    jitter = [line.first["jitter_s"] / line.first["step_time_s"] for line in lines if line.held_out]
    forms = [
        form_of(execution, processes, own)
        for execution, processes, own in zip(
            table["execution"], table["processes"], jitter, strict=True
        )
    ]
    return table.assign(
        form=forms,
        kind=table["placement"].map(kind_of),
        forecast_s=table["predicted_s"],
        step_s=table["measured_s"],
        inside=table["inside"].eq("yes"),
    )


def accuracy(told: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return a row a group of forecasts: n, mean_error (of absolute errors), bias (mean of errors),
    inside (share in the band), order (share of pairs of placements of a job whose order is right),
    compared (such pairs).
    """
    rows = []
    for key, own in told.groupby(list(by), sort=False):
        right = [
            (one["forecast_s"] < other["forecast_s"]) == (one["step_s"] < other["step_s"])
            for _, job in own.groupby(list(JOB), sort=False)
            for (_, one), (_, other) in combinations(job.iterrows(), 2)
            if one["placement"] != other["placement"]
        ]
        rows.append(
            dict(zip(by, key, strict=True))
            | {"n": len(own), "mean_error": own["error"].abs().mean(), "bias": own["error"].mean()}
            | {"inside": own["inside"].mean(), "compared": len(right)}
            | {"order": sum(right) / len(right) if right else float("nan")}
        )
    columns = [*by, "n", "mean_error", "bias", "inside", "order", "compared"]
    return pd.DataFrame(rows, columns=columns)
