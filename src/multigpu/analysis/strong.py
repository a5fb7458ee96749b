"""One joined batch on more and more devices (strong scaling): what is lost to each device's smaller batch, and what to merging.

Weak scaling measured it already: N devices with b items each take the steps of a joined batch of N b. So every weak point counts here that
has one device's point of N b items beside it, and every strong one. speedup = N x of_batch x of_merging, where of_batch is what one device
with b items reaches of its rate with N b, and of_merging what N devices with b items each reach of N times one with b.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from multigpu.analysis.formulas import NO_INTERVAL, Interval
from multigpu.analysis.metrics import summary
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.ways import CHANGED, find_point, ratio_of
from multigpu.analysis.wording import MODEL_NAMES, describe, devices_text, missing, percent_text, ratio_text

NEVER_JOINED = "independent"
"""Replicas that share no batch."""


def captured_ddp(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that show what GPUs and links take rather than hosts: image models under `ddp`, whole steps as one CUDA graph, in bf16, with
    the library's buckets or with a small last one, nothing else changed.
    """
    form = {
        "framework": "torch",
        "workload": "cnn",
        "placement": "ddp",
        "execution": "captured",
        "precision": "bf16",
        "layout": "channels_last",
    }
    same = pd.concat([frame[name].eq(value) for name, value in (form | {"inputs": "synthetic"}).items()], axis=1).all(axis=1)
    unchanged = frame[["bucket_mib", "bucket_update", *CHANGED]].isna().all(axis=1)
    return frame[same & unchanged & ~frame["bucket_send"].isin(("grouped",)) & frame["model"].isin(MODEL_NAMES)]


def strong_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Every point on several devices that has one device's point of the same joined batch.

    Args:
        frame: of `frame.frame_of`; rows of one machine, or of machines read as one.

    Returns:
        the fields of `summary`; joined, own: items of all devices together and of one; speedup (and bounds): the rate over that of one
        device with all of them; of_batch, of_merging (and bounds): see above (NaN where one device was not measured with `own` items);
        kept, lost_batch, lost_merging: of N times that device, which add up to 1; base_n, base_launches: its repeats; weak: whether the Run
        says that it scales so. In the order of models, joined batch and devices.
    """
    points = summary(frame)
    rows: list[dict[str, Any]] = []
    for _, row in points[(points["devices"] > 1) & (points["n"] > 0) & points["placement"].ne(NEVER_JOINED)].iterrows():
        devices, weak = int(row["devices"]), row["scaling"] == "weak"
        joined = int(row["batch_size"]) * (devices if weak else 1)
        if joined % devices:  # devices with unequal parts have no one device that does the same
            continue
        whole, part = (_alone(points, row, batch) for batch in (joined, joined // devices))
        if whole is None:
            continue
        speedup, ends = ratio_of(frame, row, whole)
        of_batch, batch_ends = (math.nan, NO_INTERVAL) if part is None else ratio_of(frame, part, whole)
        merged, merged_ends = ratio_of(frame, row, part)
        of_merging, kept = merged / devices, speedup / devices
        rows.append(
            {**row, "joined": joined, "own": joined // devices, "weak": weak}
            | _bounded("speedup", speedup, ends)
            | _bounded("of_batch", of_batch, batch_ends)
            | _bounded("of_merging", of_merging, Interval(merged_ends.low / devices, merged_ends.high / devices))
            | {"kept": kept, "lost_batch": 1 - of_batch, "lost_merging": of_batch - kept}
            | {"base_n": whole["n"], "base_launches": whole["launches"]}
        )
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    order = {name: index for index, name in enumerate(MODEL_NAMES)}
    # a strong Run and a weak one of the same steps: the one that was repeated more often, and of equals the one that says so
    keyed = table.assign(_model=table["model"].map(order)).sort_values(["n", "weak"], ascending=[False, True], kind="stable")
    one = ["model", "joined", "devices", "placement", "framework", "execution", "precision", "layout", "processes", "bucket_send"]
    kept_rows = keyed.drop_duplicates(one)
    return (
        kept_rows.sort_values(["_model", "joined", "devices", "bucket_send"], na_position="first")
        .drop(columns="_model")
        .reset_index(drop=True)
    )


def _alone(points: pd.DataFrame, row: Any, batch: int) -> Any | None:
    """One device with so many items, done the same way; weak and strong scaling are one job there."""
    found = (find_point(points, row, devices=1, batch_size=batch, scaling=scaling) for scaling in ("weak", "strong"))
    return next((point for point in found if point is not None), None)


def _bounded(name: str, value: float, ends: Interval) -> dict[str, float]:
    return {name: value, f"{name}_low": ends.low, f"{name}_high": ends.high}


def strong_table(frame: pd.DataFrame) -> Shown:
    """`strong_points` in words, a row a model, joined batch and number of devices."""
    table = strong_points(frame)
    rows = [
        {
            "model": describe(row, ["model", "bucket_send"]),
            "images in all": f"{row['joined']:,}",
            "GPUs": str(row["devices"]),
            "images each": f"{row['own']:,}",
            "speedup": ratio_text(row["speedup"], row["speedup_low"], row["speedup_high"]),
            "of perfect": percent_text(row["kept"]),
            "lost to a smaller batch": _share(row["lost_batch"]),
            "to merging": _share(row["lost_merging"]),
            "repeats": f"{_repeats(row['n'], row['launches'])}, {_repeats(row['base_n'], row['base_launches'])}",
        }
        for _, row in table.iterrows()
    ]
    note = (
        "Strong scaling: one joined batch, shared out. Speedup: over one GPU with all of its images. Lost, of N times that GPU: what one "
        "GPU with its share alone is slower per image, and what N of them lose beside N times that. Repeats over launches: of the GPUs "
        "together, of the one. A Run under weak scaling whose GPUs hold as many images together takes the same steps and counts here."
    )
    empty = "Not measured yet: python -m multigpu measure --grid cnn_strong,cnn_ladders does."
    right = ["images in all", "GPUs", "images each", "of perfect", "lost to a smaller batch", "to merging"]
    return table_html(pd.DataFrame(rows), note=note if rows else empty, right=right if rows else [])


def _repeats(n: int, launches: int) -> str:
    return "once" if n == 1 else f"{n}/{launches}"


def _share(value: float) -> str:
    """A share of perfect scaling that was lost; what noise makes a gain of less than a percent is told as it is."""
    return "–" if missing(value) else percent_text(value) if value >= 0 else f"-{percent_text(-value)}"


def strong_finding(frame: pd.DataFrame) -> str | None:
    """Of each model repeated on its most devices: the speedup of its smallest and largest joined batch, and where the rest went; None
    without any.
    """
    table = strong_points(frame)
    known = table[table["speedup_low"].notna() & table["of_batch"].notna()] if len(table) else table
    parts = []
    for _, own in known.groupby("model", sort=False) if len(known) else []:
        most = own[own["devices"].eq(own["devices"].max())].sort_values("joined")
        ends = [most.iloc[0], most.iloc[-1]] if len(most) > 1 else [most.iloc[0]]
        told = [
            f"{row['joined']:,} images {row['speedup']:.2f} times as fast as one ({row['speedup_low']:.2f} to {row['speedup_high']:.2f}): "
            f"{percent_text(max(0.0, row['lost_batch']))} of perfect scaling is lost to {row['own']:,} images a GPU, "
            f"{percent_text(max(0.0, row['lost_merging']))} to merging"
            for row in ends
        ]
        where = devices_text(int(most.iloc[0]["devices"]), most.iloc[0]["device_type"])
        parts.append(f"{MODEL_NAMES[str(most.iloc[0]['model'])]}: {where} train {'; and '.join(told)}.")
    return " ".join(parts) or None
