"""What became of launches in which something went wrong: processes killed by the soak on CPUs, and Runs that failed on GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise

import pandas as pd

from multigpu import paths
from multigpu.record import Record, RecordStore
from multigpu.remembered import remembered

SOAK = paths.DATA / "faults" / "soak.csv"
"""A row a kill, as `make soak` writes it."""


def failures(records: Iterable[Record]) -> pd.DataFrame:
    """A row for each Run on GPUs that is not ok: its status, and seconds until its launch had the next Record (nan: it was the last)."""
    launches: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.run.device_type == "cuda":
            launches[record.launch_id.partition(".")[0]].append(record)
    rows = []
    for own in launches.values():
        own.sort(key=lambda record: record.measured_at)
        followed = {one.key: (_at(after) - _at(one)).total_seconds() for one, after in pairwise(own)}
        rows += [{"fault": f"GPU: {one.status}", "recovered_s": followed.get(one.key)} for one in own if one.status != "ok"]
    return pd.DataFrame(rows, columns=["fault", "recovered_s"])


def fault_table(kills: pd.DataFrame, failed: pd.DataFrame) -> pd.DataFrame:
    """A row a kind of fault: how often, after how many a Record followed in that sweep, and the seconds until it did."""
    killed = kills.assign(fault="CPU: a killed " + kills["victim"])
    every = pd.concat([killed[["fault", "recovered_s"]], failed], ignore_index=True).astype({"recovered_s": float})
    found = every.groupby("fault")["recovered_s"].agg(tried="size", survived="count", median_s="median", most_s="max").reset_index()
    found.insert(3, "last", found["tried"] - found["survived"])
    return found


def faults_page() -> str:
    """The table in Markdown (MyST)."""
    failed = remembered("failures", [paths.RUNS], lambda: failures(RecordStore(paths.RUNS)))
    table = fault_table(pd.read_csv(SOAK), failed)
    names = {
        "tried": "times",
        "survived": "a Record followed",
        "last": "none followed",
        "median_s": "median s until then",
        "most_s": "most s",
    }
    rows = [[f"{value:g}" if isinstance(value, float) else str(value) for value in row] for row in table.itertuples(index=False)]
    lines = [["fault", *names.values()], ["---"] * len(table.columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _at(record: Record) -> datetime:
    return datetime.fromisoformat(record.measured_at)
