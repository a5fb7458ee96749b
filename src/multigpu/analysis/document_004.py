"""Document 004's step from Records: compute, what communication adds, bucket sizes, words a second, beside the document's figures."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pandas as pd

from multigpu.analysis.metrics import summary
from multigpu.analysis.statistics import Sample, sample
from multigpu.analysis.statistics import interval as half_width
from multigpu.published import load_published, published_value

BATCH, LENGTH = 64, 55
"""The document's pairs a GPU, and words of a source sentence; the target has one more. 51,000 words/s x 560 ms on 4 GPUs at batch 64 are
112 words a pair."""

WAY_WORDS = {
    "ddp": "all-reduce during backward",
    "replicated_allreduce": "all-reduce after backward",
    "independent": "no communication",
}


def own_runs(frame: pd.DataFrame, model: str = "nmt004", batch: int = BATCH) -> pd.DataFrame:
    """Rows of the document's model and batch under the three ways, PyTorch with a process a device, weak scaling."""
    chosen = frame["model"].eq(model) & frame["batch_size"].eq(batch) & frame["scaling"].eq("weak") & frame["placement"].isin([*WAY_WORDS])
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


PARTS = ("alone", "after_grows", "during_grows", "after", "during", "hidden")
"""Of `parts`: columns that come with bounds."""


def parts(frame: pd.DataFrame, precision: str = "fp32", execution: str = "eager", **which: Any) -> pd.DataFrame:
    """How the step of N devices grows over the same way's own step on one, which runs the same code: a row a number of devices.

    Columns: devices; in seconds alone (what replicas without communication take longer: they share the host), after_grows and
    during_grows (with all-reduce after and during backward), after and during (the same less alone: what communication costs); hidden
    (1 - during / after; NaN where after is not above 0 at 95%). Each with _low and _high (95%). NaN where a side was not measured.
    Differences of pooled steps, not of traces.
    """
    own = own_runs(frame, **which)
    own = own[own["precision"].eq(precision) & own["execution"].eq(execution) & own["bucket_mib"].isna() & own["status"].eq("ok")]
    known = {
        (str(rows["placement"].iloc[0]), int(rows["devices"].iloc[0])): _pooled(rows) for _, rows in own.groupby(["placement", "devices"])
    }
    rows = []
    for devices in sorted({count for _, count in known if count > 1}):
        alone, after, during = (
            {(way, devices): 1.0, (way, 1): -1.0} for way in ("independent", "replicated_allreduce", "ddp")
        )  # a way's growth, by the points that it is made of
        less = {point: -weight for point, weight in alone.items()}
        found = {"alone": alone, "after_grows": after, "during_grows": during, "after": after | less, "during": during | less}
        bounds = {name: _combined(known, weights) for name, weights in found.items()}
        bounds["hidden"] = (math.nan, math.nan, math.nan)
        (cost, least, _), exposed = bounds["after"], bounds["during"][0]
        if (least > 0 or (math.isnan(least) and cost > 0)) and not math.isnan(exposed):
            left = exposed / cost
            # d / a varies as d - (d / a) a does over a, wherever a is well above 0
            share = {**during, **{point: -left * weight for point, weight in after.items()}}
            _, low, high = _combined(known, share | {point: (1 - left) * weight for point, weight in less.items()})
            bounds["hidden"] = (1 - left, 1 - left + low / cost, 1 - left + high / cost)
        rows.append({"devices": devices} | {f"{name}{end}": x for name, of in bounds.items() for end, x in zip(ENDS, of, strict=True)})
    return pd.DataFrame(rows, columns=["devices", *(f"{name}{end}" for name in PARTS for end in ENDS)])


ENDS = ("", "_low", "_high")


def _pooled(rows: pd.DataFrame) -> tuple[float, Sample]:
    """The pooled step (s) of one point's repeats, and their sample."""
    own = sample(list(rows["wall_s"] / rows["timed_steps"]), list(rows["launch_id"]))
    return float(rows["wall_s"].sum() / rows["timed_steps"].sum()), own


def _combined(known: dict[tuple[str, int], tuple[float, Sample]], weights: dict[tuple[str, int], float]) -> tuple[float, float, float]:
    """A weighted sum of pooled steps with its Welch interval; NaN where a point was not measured, or (bounds) only once."""
    if any(point not in known for point in weights):
        return math.nan, math.nan, math.nan
    value = math.fsum(weight * known[point][0] for point, weight in weights.items())
    # the error of a step is that of its logarithm times the step
    errors = [replace(known[at][1], variance=known[at][1].variance * (weight * known[at][0]) ** 2) for at, weight in weights.items()]
    half = half_width(errors)
    return value, value - half, value + half


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


def exposed_by_trace(phases: pd.DataFrame, model: str = "nmt004") -> pd.DataFrame:
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
