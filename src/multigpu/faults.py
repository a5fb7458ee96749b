"""What became of launches in which something went wrong: processes killed by the soak on CPUs, Runs that failed on GPUs, planted faults."""

from collections.abc import Iterable

import pandas as pd

from multigpu import paths
from multigpu.record import Record, RecordStore
from multigpu.remembered import remembered

SOAK = paths.DATA / "faults" / "soak.csv"
"""A row a kill, as `make soak` writes it."""
PLANTED = paths.DATA / "faults" / "gpus.csv"
"""A row a fault that was planted on GPUs, as `benchmarks/faults_on_gpus.py` writes it."""


def failures(records: Iterable[Record]) -> pd.DataFrame:
    """A row for each Run on GPUs that is not ok: its status, and seconds until its launch had the next Record (nan: it was the last)."""
    rows = [(one.launch_id.partition(".")[0], one.measured_at, one.status) for one in records if one.run.device_type == "cuda"]
    table = pd.DataFrame(rows, columns=["launch", "at", "status"]).sort_values("at", kind="stable")
    at = pd.to_datetime(table["at"], utc=True)
    table = table.assign(fault="GPU: " + table["status"], recovered_s=(at.groupby(table["launch"]).shift(-1) - at).dt.total_seconds())
    return table.loc[table["status"].ne("ok"), ["fault", "recovered_s"]]


def fault_table(kills: pd.DataFrame, failed: pd.DataFrame, planted: pd.DataFrame) -> pd.DataFrame:
    """A row a kind of fault: how often, after how many a Record followed in that sweep, and the seconds until it did."""
    killed = kills.assign(fault="CPU: a killed " + kills["victim"])
    tried = planted.assign(fault="GPU, planted: " + planted["fault"])
    every = pd.concat([one[["fault", "recovered_s"]] for one in (killed, tried, failed)], ignore_index=True).astype({"recovered_s": float})
    found = every.groupby("fault")["recovered_s"].agg(tried="size", survived="count", median_s="median", most_s="max").reset_index()
    found.insert(3, "last", found["tried"] - found["survived"])
    return found


def faults_page() -> str:
    """The table in Markdown (MyST)."""
    failed = remembered("failures", [paths.RUNS], lambda: failures(RecordStore(paths.RUNS)))
    table = fault_table(pd.read_csv(SOAK), failed, pd.read_csv(PLANTED))
    heads = ["fault", "times", "a Record followed", "none followed", "median s until then", "most s"]
    cells = table.map(lambda value: f"{value:.1f}" if isinstance(value, float) else str(value))
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, ["---"] * len(heads), *cells.to_numpy().tolist()])
