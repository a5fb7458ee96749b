"""Forecast the article's own curve from its smaller counts, and read forecasts made before."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from multigpu.analysis.expected import OTHERS
from multigpu.analysis.forecast import HeldOutCount, Points, held_out
from multigpu.analysis.forecast_lines import GBIT
from multigpu.analysis.forecast_reduction import Demand, Links
from multigpu.analysis.query import run_of
from multigpu.build import build_run
from multigpu.spec.parse import parse_fields
from multigpu.spec.run import Run
from multigpu_study.published import load_published, published_value


def foretold(points: pd.DataFrame, file: Path) -> pd.DataFrame:
    """Points whose share of replicas' rate a file foretold: predicted (_low, _high)."""
    if points.empty or not file.is_file():
        return points.head(0).assign(predicted=[], predicted_low=[], predicted_high=[])
    said = pd.read_csv(file)
    runs = [build_run(**parse_fields(words.split())) for words in said["fields"]]
    others = ["digest", *OTHERS]
    told = pd.DataFrame([run.model_dump() | {"digest": run.digest} for run in runs]).join(
        said.drop(columns="fields")
    )
    job = [name for name in Run.model_fields if name not in others]
    apart = told[told["placement"].eq("independent")][[*job, "rate"]].rename(
        columns={"rate": "alone"}
    )
    told = told.merge(apart, on=job, how="left")
    ends = {f"predicted{end}": told[f"rate{end}"] / told["alone"] for end in ("", "_low", "_high")}
    return points.assign(digest=[run_of(row).digest for _, row in points.iterrows()]).merge(
        told[["digest"]].assign(**ends), on="digest"
    )


def article_held_out(links: Links) -> HeldOutCount:
    """Predict the largest count of the IBM article's curve from its smaller ones, on its links."""
    table = load_published("004_step_times").sort_values("gpus")
    names = ("gpus_per_node", "network_bandwidth", "nvlink_bandwidth", "gradient_size")
    node, gbit, inside, megabytes = (published_value("004_statements", name) for name in names)
    own = replace(
        links,
        node=int(node),
        between_bytes_per_s=gbit * GBIT / node,
        inside_bytes_per_s=1e9 * inside,
    )
    times = tuple((step_ms / 1000,) for step_ms in table["step_time_ms"].tolist())
    return held_out(
        Points(tuple(table["gpus"].tolist()), times, Demand(reduced=1e6 * megabytes)), own
    )
