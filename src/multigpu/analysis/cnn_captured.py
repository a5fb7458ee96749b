"""How document 001's models scale where no host sets their pace: whole steps as one CUDA graph, with two kinds of buckets.

What is compared differs by a percent or two, which is as much as two launches or two machines differ by; so only Records of the launches
that measured both kinds of buckets count, each under the machine that measured it.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from multigpu.analysis.cnn_page import repeats_cell
from multigpu.analysis.cnn_updates import changes
from multigpu.analysis.formulas import NO_INTERVAL
from multigpu.analysis.metrics import summary
from multigpu.analysis.ordinary import USUAL_BUCKETS
from multigpu.analysis.pairs import Change
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.ways import find_point, ratio_of
from multigpu.analysis.wording import describe, devices_text, joined, missing, percent_text, plural, rate_text

FORM = "grouped_small_last"
OWN: dict[str, tuple[Any, ...]] = {"bucket_send": (FORM,), "bucket_mib": (None,), "bucket_update": (None,)}
OVER_PACKED = Change("a small last bucket, gradients unpacked", OWN, USUAL_BUCKETS)
OVER_REPLICAS = Change("ddp beside independent replicas", OWN, USUAL_BUCKETS | {"placement": "independent"})
"""`ddp` in its fastest form over what sends nothing: all that merging costs."""


def together(frame: pd.DataFrame) -> pd.DataFrame:
    """The captured rows of the launches that measured `ddp` in this form."""
    captured = frame[frame["execution"].eq("captured")]
    own = captured[captured["bucket_send"].eq(FORM)]
    return captured[captured["launch_id"].isin(set(own["launch_id"])) & captured["model"].isin(set(own["model"]))]


def kept(frame: pd.DataFrame) -> pd.DataFrame:
    """`pairs.paired` of OVER_REPLICAS on the rows of `together`, with an interval before measured once, in the order of models.

    frame: each row under the machine that measured it (`cnn_page.as_measured`).

    Returns:
        also packed (and bounds): what the library's buckets keep of the same replicas; scaled (and bounds): the rate over as many times
        that of one device in the same form and on the same machine (NaN: of one device itself, or it was not measured).
    """
    rows = together(frame)
    table = changes(rows, [OVER_REPLICAS]) if len(rows) else pd.DataFrame()
    if table.empty:
        return table
    points = summary(rows)
    found: list[dict[str, Any]] = []
    for _, row in table.iterrows():
        replicas = find_point(points, row, **OVER_REPLICAS.base)
        packed = find_point(points, row, **USUAL_BUCKETS)
        usual, (low, high) = (math.nan, NO_INTERVAL) if packed is None else ratio_of(rows, packed, replicas)
        one = find_point(points, row, devices=1) if row["devices"] > 1 else None
        times, ends = ratio_of(rows, find_point(points, row), one)
        found.append(
            {"packed": usual, "packed_low": low, "packed_high": high, "scaled": times / row["devices"]}
            | {"scaled_low": ends.low / row["devices"], "scaled_high": ends.high / row["devices"]}
        )
    return pd.concat([table, pd.DataFrame(found, index=table.index)], axis=1)


def captured_table(frame: pd.DataFrame) -> Shown:
    """`kept` in words, a row a model, batch and number of devices."""
    rows = [
        {
            "model": describe(row, ["model", "batch_size"]),
            "GPUs": str(row["devices"]),
            "rate": rate_text(row["rate"], unit=row["unit"]),
            "step (ms)": f"{1e3 * row['step_time_s']:.2f}",
            "of perfect scaling": _cell(row, "scaled"),
            "of independent replicas": _cell(row, "ratio"),
            "packed, of the same": _cell(row, "packed"),
            "repeats": repeats_cell(row["n"], row["launches"]),
            "machine": row["machine"],
        }
        for _, row in kept(frame).iterrows()
    ]
    note = (
        "PyTorch, ddp, bf16, channels last (NHWC), weak scaling, whole steps as one CUDA graph; gradients unpacked, the small "
        "bucket last. Of "
        "perfect scaling: over as many times one GPU in the same form. Packed: what the library's buckets keep of the same replicas. "
        "95% intervals, Records of the launches that measured both kinds of buckets alone."
    )
    empty = "Not measured yet: python -m multigpu measure --grid cnn_captured,small_last does."
    right = ["rate", "step (ms)", "of perfect scaling", "of independent replicas", "packed, of the same"]
    return table_html(pd.DataFrame(rows), note=note if rows else empty, right=right if rows else [])


def captured_finding(frame: pd.DataFrame) -> str | None:
    """Of each number of devices: how many models keep all of their replicas' rate, the least, and what packing takes; None without any."""
    table = kept(frame)
    parts = []
    for devices, own in table.groupby("devices", sort=True) if len(table) else []:
        full = own["ratio_high"] >= 1
        least = own.sort_values("ratio").iloc[0]
        text = (
            f"on {devices_text(int(str(devices)), least['device_type'])} nothing tells {full.sum()} of {plural(len(own), 'point')} from "
            f"independent replicas, and the least keeps {_cell(least, 'ratio')} ({describe(least, ['model', 'batch_size'])})"
        )
        cost = 1 - (own["packed"] / own["ratio"]).dropna()
        ends = [percent_text(max(0.0, end)) for end in (cost.min(), cost.max())] if len(cost) else []
        parts.append(text + (f"; packed buckets lose {' to '.join(dict.fromkeys(ends))} more" if ends else ""))
    if not parts:
        return None
    lacking = "" if len(parts) > 1 else " On more GPUs it was not measured yet." if table["devices"].max() == 1 else ""
    return f"Captured, with gradients sent unpacked and the small bucket last: {joined(parts)}.{lacking}"


def _cell(row: Any, name: str) -> str:
    """A share with its interval in three digits."""
    if missing(row[name]):
        return "–"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.3f}" if missing(low) else f"{row[name]:.3f} ({low:.3f} to {high:.3f})"
