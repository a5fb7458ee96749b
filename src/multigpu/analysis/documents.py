"""The documents' own figures for the Runs that rebuild them: which published row stands beside which of ours."""

from __future__ import annotations

import math

import pandas as pd

from multigpu.analysis.words import Row, missing
from multigpu.published import load_published
from multigpu.run import Run

FIXED_LENGTH = 100
"""Words a sentence in Exp5, which is Exp4 with sentences of one length."""
DOCUMENT_GPU = "P100"


def published_experiments() -> pd.DataFrame:
    """000's tables: experiment, batch_size, gpus, total_time_s, words_per_s, speedup (the first row of a table has none)."""
    return load_published("000_experiments")


def experiment_of(row: Row) -> str:
    """The experiment of document 000 that this point rebuilds, or "".

    Exp5 is Exp4 with 100 words in every sentence; Exp1 to Exp4 ran on real lengths, so a point of fixed length rebuilds none of
    them. The machine, the framework and the precision differ: what stands beside each other are answers to one question.
    """
    if row["model"] != "nmt000" or row["scaling"] != "weak":
        return ""
    if not missing(row["sequence_length"]):
        return "Exp5" if row["placement"] == "exp4" and row["sequence_length"] == FIXED_LENGTH else ""
    number = str(row["placement"])[3:]
    return f"Exp{number}" if str(row["placement"]).startswith("exp") and number in ("1", "2", "3", "4") else ""


def document_rows(row: Row, published: pd.DataFrame) -> pd.DataFrame:
    """The published rows of the experiment and batch that this point rebuilds, one a number of GPUs; empty if there is none."""
    return published[(published["experiment"] == experiment_of(row)) & (published["batch_size"] == row["batch_size"])].sort_values("gpus")


def published_of(run: Run) -> pd.DataFrame:
    """What documents printed of this point: document, devices, rate (units/s), step_time_s (NaN where it is not told); empty without one.

    Documents 000 (rates of its experiments) and 004 (times of a step) have figures of single points.
    """
    rates = document_rows(run.model_dump(), published_experiments())
    tables = [rates.assign(document="000, on P100s", devices=rates["gpus"], rate=rates["words_per_s"], step_time_s=math.nan)]
    if (run.model, run.placement, run.batch_size) == ("nmt004", "ddp", 64):
        times = load_published("004_step_times")
        tables.append(times.assign(document="004, on V100s", devices=times["gpus"], rate=math.nan, step_time_s=times["step_time_ms"] / 1e3))
    every = pd.concat([table[["document", "devices", "rate", "step_time_s"]] for table in tables])
    return every[every["devices"].eq(run.devices)].reset_index(drop=True)
