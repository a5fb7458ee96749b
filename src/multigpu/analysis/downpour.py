"""DownpourRecords as a tidy frame: time to a fixed error, how old and how mixed the parameters are that replicas compute on."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from multigpu.synchrony.downpour import first_time_s
from multigpu.synchrony.downpour_record import DownpourRecord
from multigpu.synchrony.grid_training import TARGET_ERROR

COLUMNS = [
    *("key", "replicas", "shards", "rule", "rate", "every", "outages", "seed", "budget_s", "time_to_error_s", "error_last"),
    *("batches", "lost", "staleness", "staleness_theory", "spread"),
]


def downpour_frame(records: Iterable[DownpourRecord], error: float = TARGET_ERROR) -> pd.DataFrame:
    """A row a run. every: batches between two fetches and two pushes. time_to_error_s: first reached, missing if never.

    staleness: mean over shards; staleness_theory: P - 1 own-fetch updates plus those that pass while messages travel are not in it:
    it is (P - 1) for a push that follows its fetch at once. spread: mean difference between the most and least updated shard of a vector.
    outages: "none", "leave" or "return".
    """
    rows = []
    for record in records:
        e = record.experiment
        back = any(outage.until_s is not None for outage in e.outages)
        rows.append(
            {
                "key": record.key,
                "replicas": e.replicas,
                "shards": e.shards,
                "rule": e.rule,
                "rate": e.rate,
                "every": e.push_every,
                "outages": "none" if not e.outages else "return" if back else "leave",
                "seed": e.seed,
                "budget_s": e.time_s,
                "time_to_error_s": first_time_s(record.curve, error),
                "error_last": record.curve[-1].error,
                "batches": record.batches,
                "lost": record.lost,
                "staleness": sum(shard.mean for shard in record.staleness) / len(record.staleness),
                "staleness_theory": e.replicas - 1,
                "spread": record.spread.mean,
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS)
