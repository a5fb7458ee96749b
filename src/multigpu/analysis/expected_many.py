"""Forecast many Runs."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from multigpu.analysis.expected import expected
from multigpu.analysis.fields import LENGTH
from multigpu.analysis.query import command_of
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
