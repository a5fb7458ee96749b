"""Forecast many Runs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from multigpu.analysis.expected import expected
from multigpu.analysis.fields import LENGTH
from multigpu.analysis.query import command_of
from multigpu.analysis.read import Study
from multigpu.spec.run import Run


def forecasts(runs: Path, planned: Sequence[Run]) -> pd.DataFrame:
    """Return the forecast of each of these Runs that can be forecast: fields off their defaults,
    run (its digest), rate (_low, _high), efficiency, basis, foretold_on (today, UTC).
    """
    study = Study.of_runs(runs)
    rows, today = [], datetime.now(UTC).date().isoformat()
    for run in {run.digest: run for run in planned if not run.traced_steps}.values():
        fields = run.model_dump(exclude_defaults=True)
        found = expected(
            study, {name: value for name, value in fields.items() if name not in LENGTH}
        )
        if found is not None:
            told = " ".join(command_of(fields).split()[4:])
            known = {"fields": told, "run": run.digest, "foretold_on": today}
            rows.append({**known, **found.as_dict(), "efficiency": found.scaling})
    rates = ("rate", "rate_low", "rate_high", "efficiency", "basis")
    return pd.DataFrame(rows, columns=["fields", "run", *rates, "foretold_on"])
