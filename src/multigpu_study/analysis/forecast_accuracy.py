"""Judge forecasts by what was measured: mean error, order of placements, share in the band; and the
tables of lines that are forecast.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pandas as pd

from multigpu.analysis.fields import SERIES
from multigpu.analysis.forecast import widened, widening_of
from multigpu.analysis.forecast_lines import Series
from multigpu.analysis.merge_cost import form_of, kind_of
from multigpu_study.analysis.merge_cost import held_without_itself, left_out

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


def forecast_lines(lines: Sequence[Series], most: int = 1024, draws: int = 1000) -> list[Series]:
    """The lines, where they can be with their forecast to `most` devices, held-out point and
    widened bands. ValueError: `most` < 2.
    """
    if most < 2:
        raise ValueError(f"a forecast goes to at least 2 devices, not {most}")
    return calibrated([line.with_forecast(most, draws) for line in lines])


def calibrated(lines: Sequence[Series]) -> list[Series]:
    """Each line with bands widened by what the held-out points of the others of its kind ask for
    (`forecast.widening_of`).
    """
    done = []
    for line in lines:
        if line.forecast is not None and line.held_out is not None:
            by = widening_of(
                [other.held_out for other in lines if other is not line and other.kind == line.kind]
            )
            line = replace(
                line, forecast=widened(line.forecast, by), held_out=line.held_out.widen(by)
            )
        done.append(line)
    return done


def ahead_table(lines: Sequence[Series]) -> pd.DataFrame:
    """A row a line and count of its forecast: SERIES, keys, devices, step_s and efficiency (_low,
    _high), `forecast.PARTS`, measured.
    """
    tables = [
        _series(line).merge(
            line.forecast.assign(measured=line.forecast["devices"].isin(line.rows["devices"])),
            how="cross",
        )
        for line in lines
        if line.forecast is not None
    ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _series(line: Series) -> pd.DataFrame:
    """One row: the fields of the series, and keys."""
    return line.rows[list(SERIES)].head(1).assign(keys=", ".join(line.rows["keys"]))


def held_out_table(lines: Sequence[Series]) -> pd.DataFrame:
    """A row a line with a held-out count: SERIES, keys, devices, its efficiency as predicted from
    the smaller counts (_low, _high) and as measured, predicted_s and measured_s (the steps), error
    (predicted step over measured, less 1), inside (the measured step lies in the band, as text), n.
    """
    tables = []
    for line in lines:
        if (held := line.held_out) is None:
            continue
        efficiency = {"efficiency": held.predicted_s, "measured": held.measured_s}
        efficiency |= {"efficiency_low": held.high_s, "efficiency_high": held.low_s}
        row = _series(line).assign(
            **{name: held.one_s / step_s for name, step_s in efficiency.items()}
        )
        inside = {None: "", True: "yes", False: "no"}[held.inside]
        tables.append(
            row.assign(
                devices=held.devices,
                predicted_s=held.predicted_s,
                measured_s=held.measured_s,
                error=held.error,
                inside=inside,
                n=int(line.rows["n"].iloc[-1]),
            )
        )
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
