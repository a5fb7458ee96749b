"""DownpourRecords as a tidy frame: time to a fixed error, how old and how mixed the parameters are that replicas compute on."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

import pandas as pd

from multigpu.synchrony.downpour import first_time_s
from multigpu.synchrony.downpour_record import DownpourRecord
from multigpu.synchrony.grid_training import TARGET_ERROR

OF_EXPERIMENT = {
    **{name: name for name in ("replicas", "shards", "rule", "rate", "seed")},
    **{"every": "push_every", "budget_s": "time_s"},
}
"""Columns that an experiment's fields fill."""
COLUMNS = [
    *("key", "replicas", "shards", "rule", "rate", "every", "outages", "seed", "budget_s", "time_to_error_s", "error_last"),
    *("batches", "lost", "staleness", "staleness_theory", "spread"),
]


def downpour_frame(records: Iterable[DownpourRecord]) -> pd.DataFrame:
    """A row a run. every: batches between two fetches and two pushes. time_to_error_s: `TARGET_ERROR` first reached, missing if never.

    staleness: mean over shards; staleness_theory: P - 1, for a push that follows its fetch at once. Own-fetch updates, and those that pass
    while messages travel, are not in it. spread: mean difference between the most and least updated shard of a vector.
    outages: "none", "leave" or "return".
    """
    rows = []
    for record in records:
        e = record.experiment
        back = any(outage.until_s is not None for outage in e.outages)
        rows.append(
            {name: getattr(e, field) for name, field in OF_EXPERIMENT.items()}
            | {name: getattr(record, name) for name in ("key", "batches", "lost")}
            | {"outages": "none" if not e.outages else "return" if back else "leave"}
            | {"time_to_error_s": first_time_s(record.curve, TARGET_ERROR), "error_last": record.curve[-1].error}
            | {"staleness": fmean(shard.mean for shard in record.staleness), "staleness_theory": e.replicas - 1}
            | {"spread": record.spread.mean}
        )
    return pd.DataFrame(rows, columns=COLUMNS)
