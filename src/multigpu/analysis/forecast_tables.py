"""What forecasts say, as tables: the counts ahead, the count that was held out, and a document's own curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from multigpu.analysis.asked import CHANGES, run_of
from multigpu.analysis.expected import KERNELS
from multigpu.analysis.fields import SERIES
from multigpu.analysis.forecast import HeldOut, Points, held_out
from multigpu.analysis.forecast_lines import GBIT, Line
from multigpu.analysis.forecast_merge import Demand, Links
from multigpu.arguments import parse_fields
from multigpu.published import load_published, published_value
from multigpu.run import Run, build_run


def ahead_table(lines: Sequence[Line]) -> pd.DataFrame:
    """A row a line and count of its forecast.

    Returns:
        the fields of the series, keys, devices, efficiency over the same placement on one device and step_s, each with `_low` and `_high`
        (95%), a column of seconds a part of the step (`forecast.PARTS`), measured (whether this count is among those fitted).
    """
    tables = [
        _series(line).merge(line.forecast.assign(measured=line.forecast["devices"].isin(line.rows["devices"])), how="cross")
        for line in lines
        if line.forecast is not None
    ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _series(line: Line) -> pd.DataFrame:
    """One row: the fields of the series, and keys."""
    return line.rows[list(SERIES)].head(1).assign(keys=", ".join(line.rows["keys"]))


def held_out_table(lines: Sequence[Line]) -> pd.DataFrame:
    """A row a line with a held-out count: what the smaller counts say of it, beside its measurement.

    Returns:
        the fields of the series, keys, devices (held out), efficiency (predicted, over the fitted step on one device) with `_low` and
        `_high`, measured (efficiency), error (predicted step over measured, less 1), inside (whether the measured step lies in the band,
        as text), n (repeats of the held-out count).
    """
    tables = []
    for line in lines:
        if (held := line.held_out) is None:
            continue
        efficiency = {"efficiency": held.predicted_s, "measured": held.measured_s}
        efficiency |= {"efficiency_low": held.high_s, "efficiency_high": held.low_s}
        row = _series(line).assign(**{name: held.one_s / step_s for name, step_s in efficiency.items()})
        inside = {None: "", True: "yes", False: "no"}[held.inside]
        tables.append(row.assign(devices=held.devices, error=held.error, inside=inside, n=int(line.rows["n"].iloc[-1])))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def foretold(points: pd.DataFrame, file: Path) -> pd.DataFrame:
    """The points of which a file of `measure --forecast` said beforehand what share of independent replicas' rate they keep.

    Returns:
        the rows of `points`, with predicted (rate over that of independent replicas, both as forecast), predicted_low and predicted_high;
        none where there is no such file.
    """
    if points.empty or not file.is_file():
        return points.head(0).assign(predicted=[], predicted_low=[], predicted_high=[])
    said = pd.read_csv(file)
    runs = [build_run(**parse_fields(words.split())) for words in said["fields"]]
    others = ["digest", *(name for name in CHANGES if name not in KERNELS)]
    told = pd.DataFrame([run.model_dump() | {"digest": run.digest} for run in runs]).join(said.drop(columns="fields"))
    job = [name for name in Run.model_fields if name not in others]
    apart = told[told["placement"].eq("independent")][[*job, "rate"]].rename(columns={"rate": "alone"})
    told = told.merge(apart, on=job, how="left")
    ends = {f"predicted{end}": told[f"rate{end}"] / told["alone"] for end in ("", "_low", "_high")}
    return points.assign(digest=[run_of(row).digest for _, row in points.iterrows()]).merge(told[["digest"]].assign(**ends), on="digest")


def article_held_out(links: Links) -> HeldOut:
    """The largest count of the IBM all-reduce article's own curve, predicted from its smaller ones on its own network, which a machine's
    GPUs share, and the bytes that it says it merges.
    """
    table = load_published("004_step_times").sort_values("gpus")
    names = ("gpus_per_node", "network_bandwidth", "nvlink_bandwidth", "gradient_size")
    node, gbit, inside, megabytes = (published_value("004_statements", name) for name in names)
    own = replace(links, node=int(node), between_bytes_per_s=gbit * GBIT / node, inside_bytes_per_s=1e9 * inside)
    times = tuple((step_ms / 1000,) for step_ms in table["step_time_ms"].tolist())
    return held_out(Points(tuple(table["gpus"].tolist()), times, Demand(reduced=1e6 * megabytes)), own)
