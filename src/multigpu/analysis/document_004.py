"""Document 004's step from Records: compute, what communication adds, bucket sizes, words a second, beside the document's figures."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from multigpu.analysis.metrics import summary
from multigpu.claims.names import NMT_DDL
from multigpu.grid.document_004 import BATCH, WAYS
from multigpu.published import load_published, published_value

WAY_WORDS = {
    "ddp": "all-reduce during backward",
    "replicated_allreduce": "all-reduce after backward",
    "independent": "no communication",
}


def own_runs(frame: pd.DataFrame, model: str = NMT_DDL, batch: int = BATCH) -> pd.DataFrame:
    """Rows of the document's model and batch under the three ways, PyTorch with a process a device, weak scaling."""
    chosen = frame["model"].eq(model) & frame["batch_size"].eq(batch) & frame["scaling"].eq("weak") & frame["placement"].isin(WAYS)
    return frame[chosen & frame["framework"].eq("torch") & frame["processes"].eq("per_device")]


def steps(frame: pd.DataFrame, precision: str = "fp32", execution: str = "eager", **which: Any) -> pd.DataFrame:
    """A row a way and number of devices, of `own_runs` with the library's own buckets.

    Columns: placement, devices, n, launches, step_s, low_s, high_s (95%, from those of the rate), words_per_s, speedup and efficiency
    (against one device, weak scaling: N T1 / TN and T1 / TN), document_s, document_efficiency, keys. `which`: see `own_runs`.
    """
    own = own_runs(frame, **which)
    own = own[own["precision"].eq(precision) & own["execution"].eq(execution) & own["bucket_mib"].isna()]
    table = summary(own)
    table = table[table["n"] > 0]
    document = load_published("004_step_times").set_index("gpus")["step_time_ms"]
    rows = []
    for _, row in table.iterrows():
        devices, step_s = int(row["devices"]), float(row["step_time_s"])
        one = table[(table["placement"] == row["placement"]) & (table["devices"] == 1)]["step_time_s"]
        efficiency = float(one.iloc[0]) / step_s if len(one) else math.nan
        words = row["rate"] * step_s  # of one step
        theirs = float(document.get(devices, math.nan))
        rows.append(
            {
                "placement": row["placement"],
                "devices": devices,
                "n": int(row["n"]),
                "launches": int(row["launches"]),
                "step_s": step_s,
                "low_s": words / row["rate_high"],
                "high_s": words / row["rate_low"],
                "words_per_s": row["rate"],
                "speedup": devices * efficiency,
                "efficiency": efficiency,
                "document_s": theirs / 1000,
                "document_efficiency": float(document[1]) / theirs,
                "keys": row["keys"],
            }
        )
    columns = ["placement", "devices", "n", "launches", "step_s", "low_s", "high_s", "words_per_s", "speedup", "efficiency"]
    found = pd.DataFrame(rows, columns=[*columns, "document_s", "document_efficiency", "keys"])
    return found.sort_values(["devices", "placement"], kind="stable").reset_index(drop=True)


def parts(frame: pd.DataFrame, **which: Any) -> pd.DataFrame:
    """What the step of N devices is made of: a row a number of devices.

    Columns: devices, one_s (the step of one device), host_s (what N devices without communication take longer: they share the
    host), after_s and during_s (what communication adds to that, after and during backward), hidden (1 - during / after). NaN where
    a side was not measured. Differences of pooled steps, not of traces.
    """
    table = steps(frame, **which)

    def step(placement: str, devices: int) -> float:
        found = table[(table["placement"] == placement) & (table["devices"] == devices)]["step_s"]
        return float(found.iloc[0]) if len(found) else math.nan

    rows = []
    for devices in sorted(int(count) for count in table["devices"].unique() if count > 1):
        alone = step("independent", devices)
        after, during = step("replicated_allreduce", devices) - alone, step("ddp", devices) - alone
        rows.append(
            {
                "devices": devices,
                "one_s": step("independent", 1),
                "host_s": alone - step("independent", 1),
                "after_s": after,
                "during_s": during,
                "hidden": 1 - during / after if after > 0 else math.nan,
            }
        )
    return pd.DataFrame(rows, columns=["devices", "one_s", "host_s", "after_s", "during_s", "hidden"])


def buckets(frame: pd.DataFrame, precision: str = "fp32", execution: str = "eager", **which: Any) -> pd.DataFrame:
    """All-reduce during backward by size of bucket: a row a number of devices and size.

    Columns: devices, bucket_mib (25, the library's own, where the Run says nothing), step_s, n, keys; only counts with several sizes.
    """
    own = own_runs(frame, **which)
    own = own[own["placement"].eq("ddp") & own["precision"].eq(precision) & own["execution"].eq(execution) & own["devices"].gt(1)]
    table = summary(own)
    table = table[table["n"] > 0]
    found = pd.DataFrame(
        {
            "devices": table["devices"].astype(int),
            "bucket_mib": table["bucket_mib"].astype("Int64").fillna(25).astype(int),
            "step_s": table["step_time_s"],
            "n": table["n"].astype(int),
            "keys": table["keys"],
        }
    )
    several = found.groupby("devices")["bucket_mib"].transform("nunique") > 1
    return found[several].sort_values(["devices", "bucket_mib"], kind="stable").reset_index(drop=True)


def exposed_by_trace(phases: pd.DataFrame, model: str = NMT_DDL) -> pd.DataFrame:
    """From traces: communication of a step and how much of it no compute covered. A row a way, form of execution and number of devices.

    Args:
        phases: of `traces.phases_frame`.

    Returns:
        placement, execution, precision, devices, communication_s, pure_s (the least over replicas: without waiting), exposed_s (the
        mean over replicas and steps), host_s (what the host took to launch a step), step_s (without a profiler: `traces.timed_step_s`).
    """
    own = phases[phases["model"].eq(model)]
    by = ["placement", "execution", "precision", "devices"]
    columns = {"communication_s": "communication_s", "pure_communication_s": "pure_s", "exposed_s": "exposed_s", "host_s": "host_s"}
    table = own.groupby(by, as_index=False)[[*columns, "timed_step_s"]].mean()
    return table.rename(columns=columns | {"timed_step_s": "step_s"})


def link_seconds() -> dict[str, float]:
    """What the document's own gradients take on its own links, in seconds: two figures for NVLink, which it gives as 150 GB/s.

    A ring over two processes sends N bytes each way. "one way": a link that carries 75 GB/s each way, 150 together; "both":
    150 GB/s each way. "claimed": what the document takes for the transfer.
    """
    size = 1e6 * published_value("004_statements", "gradient_size")
    rate = 1e9 * published_value("004_statements", "nvlink_bandwidth")
    claimed = published_value("004_statements", "communication_time_2_gpus") / 1000
    return {"one way": size / (rate / 2), "both": size / rate, "claimed": claimed}
