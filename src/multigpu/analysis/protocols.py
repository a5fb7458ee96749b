"""One set of Records under two protocols: as document 000 timed, and with the warm-up left out.

The document trained 50 batches, from the first one on, and divided all words by all time. The same sums over our Records' own
steps, warm-up included, say how much of a figure is the protocol.
"""

from __future__ import annotations

import pandas as pd

from multigpu.analysis.formulas import Interval
from multigpu.analysis.metrics import POINT, scaling_table
from multigpu.analysis.style import look
from multigpu.analysis.tables import Shown, tables_by
from multigpu.analysis.wording import field_text, missing, rate_text, ratio_text

BATCHES = 50
"""Batches that document 000 timed."""
NONE = "No Record to time in two ways: all sentences of one length, step times by a device's clock."


def as_published(frame: pd.DataFrame, steps: pd.DataFrame, batches: int = BATCHES, counted: pd.DataFrame | None = None) -> pd.DataFrame:
    """The rows of `frame` with the units, wall time (s) and rate of their first `batches` steps, warm-up included.

    A Record of fewer steps counts as if it had gone on to `batches` at the pace of its timed ones: its warm-up would else weigh more than
    in the document's 50 batches, and Records of different lengths would not compare.

    Args:
        frame: of `load_frame`; rows whose steps may differ in units (lengths of their own) are left out unless `counted` has them,
            since Records keep the units of the timed steps alone.
        steps: of `frame.step_times`. A step lasts until its slowest replica has ended it.
        counted: of `protocols_lengths.counted_units`: units of every step of Records on sentences of different lengths.
    """
    again = pd.DataFrame({"key": [], "step": [], "units": []}) if counted is None else counted
    known = frame["inputs"].eq("synthetic") | frame["key"].isin(again["key"])
    even = frame[frame["status"].eq("ok") & known & frame["key"].isin(steps["key"])].copy()
    first = steps[steps["step"] < batches]
    slowest = first.groupby(["key", "step"])["step_time_s"].max().groupby(level="key")
    wall, count = (even["key"].map(found).astype(float) for found in (slowest.sum(), slowest.size()))
    steady = even["units"] / even["timed_steps"]
    own = again[again["step"] < batches].groupby("key")["units"].sum()
    units = even["key"].map(own).astype(float).fillna(steady * count)
    wall += (batches - count) * even["wall_s"] / even["timed_steps"]
    units += (batches - count) * steady
    return even.assign(units=units, wall_s=wall, units_per_s=units / wall)


def protocol_frame(frame: pd.DataFrame, steps: pd.DataFrame, batches: int = BATCHES, counted: pd.DataFrame | None = None) -> pd.DataFrame:
    """A row a point: rate (units/s) and speedup over the same placement on one device, under both protocols, with intervals.

    Columns: those of POINT, n, then `published_` and `corrected_` rate, speedup, speedup_low,
    speedup_high, and first_over_rest: time as published over that of as many steady steps. Arguments: of `as_published`.
    """
    timed = as_published(frame, steps, batches, counted)
    keys = list(POINT)
    measures = ["rate", "speedup", "speedup_low", "speedup_high"]
    if timed.empty:
        return pd.DataFrame(columns=[*keys, "n", *(f"{way}_{name}" for way in ("published", "corrected") for name in measures)])
    ways = {}
    for way, rows in (("published", timed), ("corrected", frame[frame["key"].isin(timed["key"])])):
        table = scaling_table(rows)
        ways[way] = table[table["n"] > 0][[*keys, "n", *measures]].rename(columns={name: f"{way}_{name}" for name in measures})
    both = ways["published"].merge(ways["corrected"].drop(columns="n"), on=keys)
    return both.assign(first_over_rest=both["corrected_rate"] / both["published_rate"])


def protocol_table(table: pd.DataFrame) -> Shown:
    """Both protocols beside each other, a row a placement and number of GPUs."""
    cells = []
    for _, row in table.sort_values(["batch_size", "scaling", "placement", "devices"]).iterrows():
        cell = {"batch": field_text(row, "batch_size"), "placement": look(row["placement"]).label, "GPUs": str(row["devices"])}
        for way, title in (("published", "as published"), ("corrected", "warm-up left out")):
            low, high = row[f"{way}_speedup_low"], row[f"{way}_speedup_high"]
            low, high = (float("nan"), float("nan")) if low == high else (low, high)  # one GPU against itself
            cell[f"{title}: words/s"] = rate_text(row[f"{way}_rate"]).removesuffix(" words/s")
            known = not missing(row[f"{way}_speedup"])
            cell[f"{title}: speedup"] = (
                ratio_text(row[f"{way}_speedup"], low, high).replace(" times", "") if known else "one GPU not measured"
            )
        cells.append(cell | {"n": str(row["n"])})
    note = (
        f"As published: all words over all time of the first {BATCHES} steps; a Record of fewer goes on at its steady pace. One launch "
        "serves many Runs here, so libraries are mostly loaded before a Run's first step."
    )
    right = [name for name in (cells[0] if cells else {}) if name not in ("batch", "placement")]
    return tables_by(pd.DataFrame(cells), "batch", note if cells else NONE, right)


def protocol_finding(table: pd.DataFrame) -> str:
    """What the protocol alone does to rates, and to speedups where it does anything beyond their intervals."""
    if table.empty:
        return NONE
    slower = table["first_over_rest"]
    sentence = (
        f"Timed as the document did, from the first batch on, rates are {ratio_text(1 / slower.max())} to {ratio_text(1 / slower.min())} "
        f"of those without the warm-up ({ratio_text(1 / slower.median())} in the median of {len(table)} points)."
    )
    several = table[(table["devices"] > 1) & table["published_speedup"].notna()]
    apart = [
        row
        for _, row in several.iterrows()
        if Interval(row["published_speedup_low"], row["published_speedup_high"]).given
        and (row["published_speedup_high"] < row["corrected_speedup_low"] or row["published_speedup_low"] > row["corrected_speedup_high"])
    ]
    if not len(several):
        return sentence
    if not apart:
        return f"{sentence} Speedups over one GPU agree within their intervals on all {len(several)} points."
    most = max(apart, key=lambda row: abs(row["published_speedup"] / row["corrected_speedup"] - 1))
    return (
        f"{sentence} On {len(apart)} of {len(several)} points the speedup over one GPU changes by more than the intervals, most for "
        f"{look(most['placement']).label} on {most['devices']} GPUs at {most['batch_size']}: {ratio_text(most['published_speedup'])} as "
        f"published, {ratio_text(most['corrected_speedup'])} without the warm-up."
    )
