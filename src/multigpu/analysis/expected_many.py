"""Forecast many Runs, and set forecasts beside what was measured since."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from multigpu.analysis.expected import KERNELS, expected
from multigpu.analysis.fields import LENGTH
from multigpu.analysis.query import CHANGES, command_of, run_of
from multigpu.build import build_run
from multigpu.spec.parse import parse_fields
from multigpu.spec.run import Run


def forecasts(runs: Path, planned: Sequence[Run]) -> pd.DataFrame:
    """Return the forecast of each of these Runs that can be forecast: fields off their defaults,
    rate (_low, _high), efficiency, basis.
    """
    rows = []
    for run in {run.digest: run for run in planned if not run.traced_steps}.values():
        fields = run.model_dump(exclude_defaults=True)
        if (
            found := expected(
                runs, {name: value for name, value in fields.items() if name not in LENGTH}
            )
        ) is not None:
            told = " ".join(command_of(fields).split()[4:])
            rows.append({"fields": told, **found.as_dict(), "efficiency": found.scaling})
    return pd.DataFrame(
        rows, columns=["fields", "rate", "rate_low", "rate_high", "efficiency", "basis"]
    )


def foretold(points: pd.DataFrame, file: Path) -> pd.DataFrame:
    """Points of which a file of `measure --forecast` foretold which share of replicas' rate each
    keeps: predicted (_low, _high).
    """
    if points.empty or not file.is_file():
        return points.head(0).assign(predicted=[], predicted_low=[], predicted_high=[])
    said = pd.read_csv(file)
    runs = [build_run(**parse_fields(words.split())) for words in said["fields"]]
    others = ["digest", *(name for name in CHANGES if name not in KERNELS)]
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
