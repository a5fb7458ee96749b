"""The documents' own figures, as they printed them: `data/published/*.csv`."""

from pathlib import Path

import pandas as pd

from multigpu.paths import PUBLISHED
from multigpu.spec.run import Run


def load_published(name: str) -> pd.DataFrame:
    """One table of the documents; its columns carry their units in their names, an empty cell is
    one the document leaves empty.
    name: the file's without ".csv", which begins with the document's number; a ValueError names the
        known ones.
    """
    if name not in (known := sorted(path.stem for path in PUBLISHED.glob("*.csv"))):
        raise ValueError(f"unknown published table {name!r}: choose one of {', '.join(known)}")
    return pd.read_csv(PUBLISHED / f"{name}.csv")


def beside_records(path: Path) -> pd.DataFrame:
    """Read a table that a program of `benchmarks/` wrote, data/keras/fit.csv; empty without it."""
    return pd.read_csv(path) if path.is_file() else pd.DataFrame()


def published_value(name: str, statement: str) -> float:
    """A value of a table of statements (`001_statements`), in its unit; ValueError: known names."""
    table = load_published(name)
    if "name" not in table:
        raise ValueError(
            f"published table {name!r} holds no named statements: read it with load_published"
        )
    row = table.loc[table["name"] == statement, "value"]
    if row.empty:
        raise ValueError(
            f"unknown statement {statement!r} of {name!r}: choose one of {', '.join(table['name'])}"
        )
    return float(row.iloc[0])


EXPERIMENTS = {
    ("exp1", None): "Exp1",
    ("exp2", None): "Exp2",
    ("exp3", None): "Exp3",
    ("exp4", None): "Exp4",
    ("exp4", 100): "Exp5",
}
"""Document 000's, by placement and length of a Run: Exp5 of 100 words, others on real lengths."""


def published_of(run: Run) -> pd.DataFrame:
    """Return the figures that documents printed of this point: document, devices, rate (units/s),
    step_time_s (NaN where untold); 000 and 004 have any.
    """
    if (run.model, run.scaling) == ("nmt000", "weak"):
        rebuilt = EXPERIMENTS.get((run.placement, run.sequence_length), "")
    else:
        rebuilt = ""
    rates = load_published("000_experiments").rename(columns={"words_per_s": "rate"})
    rates = rates[rates["experiment"].eq(rebuilt) & rates["batch_size"].eq(run.batch_size)]
    times = load_published("004_step_times").assign(
        step_time_s=lambda table: table["step_time_ms"] / 1e3
    )
    same = (run.model, run.placement, run.batch_size) == ("nmt004", "ddp", 64)
    every = pd.concat(
        [
            rates.assign(document="000, on P100s"),
            times.iloc[: len(times) if same else 0].assign(document="004, on V100s"),
        ]
    )
    found = every.rename(columns={"gpus": "devices"}).reindex(
        columns=["document", "devices", "rate", "step_time_s"]
    )
    return found[found["devices"].eq(run.devices)].reset_index(drop=True)
