"""Speedups above the number of devices (document 001: "probably due to noise in the 1-GPU measurement"): each, and what explains it."""

from __future__ import annotations

from statistics import median
from typing import Any

import pandas as pd

from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.ordinary import BUCKETS, of_today
from multigpu.analysis.pairs import ratio_cell
from multigpu.analysis.picture import Shown, folded
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import describe, joined, missing, percent_text, plural

WITHIN = "its own interval holds N: not above N"
SPREAD = "the baseline's spread is larger than the excess"
BEYOND = "more than the baseline's spread"
ONCE = "measured once: no interval to tell it from N"
SHORT = {BEYOND: BEYOND, SPREAD: "within the spread", WITHIN: "interval holds N", ONCE: "measured once"}
SAID = {
    BEYOND: "by more than the baseline's spread",
    SPREAD: "by less than the baseline's spread",
    WITHIN: "with an interval that holds N",
    ONCE: "measured once, which no interval tells from N",
}


def superlinear(frame: pd.DataFrame) -> pd.DataFrame:
    """Every point whose speedup over the same placement on one device exceeds its number of devices.

    Returns:
        the columns of `scaling_table`; excess: speedup / N - 1; baseline_spread: (fastest - slowest) / mean of the one-device point's
        repeats, or, where it was measured once, the median of that over the model's other one-device points (NaN without any);
        borrowed: whether it is the latter; why: one of this module's four sentences.
    """
    table = scaling_table(of_today(frame))
    above = table[(table["devices"] > 1) & (table["speedup"] > table["devices"]) & (table["placement"] != "independent")]
    rows = []
    for _, row in above.iterrows():
        spread, borrowed = _baseline_spread(table, row)
        excess = row["speedup"] / row["devices"] - 1
        if missing(row["speedup_low"]):
            why = SPREAD if not missing(spread) and spread >= excess else ONCE
        elif row["speedup_low"] <= row["devices"]:
            why = WITHIN
        else:
            why = SPREAD if spread >= excess else BEYOND
        rows.append({**row, "excess": excess, "baseline_spread": spread, "borrowed": borrowed, "why": why})
    return pd.DataFrame(rows)


def _baseline_spread(table: pd.DataFrame, row: Any) -> tuple[float, bool]:
    ones = table[(table["devices"] == 1) & (table["model"] == row["model"]) & (table["n"] > 1)]
    same = [
        "placement",
        "framework",
        "execution",
        "processes",
        "batch_size",
        "precision",
        "layout",
        *BUCKETS,
        "wire_dtype",
    ]
    own = ones
    for name in same:
        own = own[own[name].isna() if missing(row[name]) else own[name] == row[name]]
    if len(own):
        return float(own.iloc[0]["spread"]), False
    known = [float(value) for value in ones["spread"] if not missing(value)]
    return (median(known), True) if known else (float("nan"), False)


def superlinear_table(frame: pd.DataFrame) -> Shown:
    """`superlinear` in words."""
    table = superlinear(frame)
    table = table.sort_values("excess", ascending=False, kind="stable") if len(table) else table
    settings = ["precision", "execution", "processes", "framework"]
    differ = [name for name in settings if len(table) and table[name].nunique() > 1]
    rows = [
        {
            "Run": describe(row, ["model", "batch_size", *differ]),
            "placement": look(row["placement"]).label,
            "N": str(row["devices"]),
            "speedup": ratio_cell(row, "speedup"),
            "above N by": f"{100 * row['excess']:.1f}%",
            "baseline's spread": "–"
            if missing(row["baseline_spread"])
            else percent_text(row["baseline_spread"]) + (" (of others)" if row["borrowed"] else ""),
            "so": SHORT[row["why"]],
        }
        for _, row in table.iterrows()
    ]
    note = (
        "Speedup over the same placement on one GPU. Spread: (fastest - slowest) / mean of the baseline's repeats; of others: the baseline"
        " was measured once, and this is the median of the model's other one-GPU points. Measured once: no interval tells it from N."
    )
    if len(table) and (shared := describe(table.iloc[0], [name for name in settings if name not in differ])):
        note += f" Every row: {shared}."
    right = ["N", "speedup", "above N by", "baseline's spread"]
    if not rows:
        return table_html(pd.DataFrame(), note="No speedup exceeds the number of devices.")
    return folded(f"{plural(len(rows), 'speedup')} above the number of GPUs", table_html(pd.DataFrame(rows), note=note, right=right))


def superlinear_sentence(frame: pd.DataFrame) -> str:
    """How many speedups exceed N, and how many of them noise does not explain."""
    table, every = superlinear(frame), scaling_table(of_today(frame))
    several = every[(every["devices"] > 1) & every["speedup"].notna() & (every["placement"] != "independent")]
    if table.empty:
        return f"Of {plural(len(several), 'speedup')}, none exceeds the number of GPUs."
    counts = table["why"].value_counts()
    parts = [f"{counts[why]} {words}" for why, words in SAID.items() if counts.get(why)]
    return f"Of {plural(len(several), 'speedup')}, {len(table)} exceed the number of GPUs: {joined(parts)}."
