"""Speedups above the number of devices (document 001: "probably due to noise in the 1-GPU measurement"): each, and what explains it."""

from __future__ import annotations

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
NONE = "no repeated point of this kind: its baseline's spread is not known"
SHORT = {BEYOND: "beyond the spread", SPREAD: "within the spread", WITHIN: "interval holds N", NONE: "no repeated point of this kind"}

OWN, MODEL, KIND = "", "this model's others", "other models'"
"""Whose spread stands for the baseline's: its own repeats', or, where it was measured once, that of repeated points of its kind."""
OF_A_KIND = ("framework", "execution", "processes")
"""What sets how much a step waits for its host, and so how far repeats of a point lie apart."""


def superlinear(frame: pd.DataFrame) -> pd.DataFrame:
    """Every point whose speedup over the same placement on one device exceeds its number of devices.

    Returns:
        the columns of `scaling_table`; excess: speedup / N - 1; baseline_spread: (fastest - slowest) / mean of the one-device point's
        repeats, or, where it was measured once, the median of that over one-device points of its kind (OF_A_KIND), the model's own if it
        has any (NaN without any point of this kind); spread_of: OWN, MODEL or KIND; why: one of this module's four sentences.
    """
    table = scaling_table(of_today(frame))
    above = table[(table["devices"] > 1) & (table["speedup"] > table["devices"]) & (table["placement"] != "independent")]
    rows = []
    for _, row in above.iterrows():
        spread, of = _baseline_spread(table, row)
        excess = row["speedup"] / row["devices"] - 1
        if not missing(row["speedup_low"]) and row["speedup_low"] <= row["devices"]:
            why = WITHIN
        else:
            why = NONE if missing(spread) else SPREAD if spread >= excess else BEYOND
        rows.append({**row, "excess": excess, "baseline_spread": spread, "spread_of": of, "why": why})
    return pd.DataFrame(rows)


def _baseline_spread(table: pd.DataFrame, row: Any) -> tuple[float, str]:
    """The spread of the point's own baseline, or of repeated ones of its kind, and whose it is."""
    ones = table[(table["devices"] == 1) & (table["n"] > 1) & table[list(OF_A_KIND)].eq(row[list(OF_A_KIND)]).all(axis=1)]
    same = ["model", "placement", "batch_size", "precision", "layout", *BUCKETS, "wire_dtype"]
    own, models = ones, ones[ones["model"] == row["model"]]
    for name in same:
        own = own[own[name].isna() if missing(row[name]) else own[name] == row[name]]
    if len(own):
        return float(own.iloc[0]["spread"]), OWN
    alike, of = (models, MODEL) if len(models) else (ones, KIND)
    return (float(alike["spread"].median()), of) if len(alike) else (float("nan"), OWN)


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
            "baseline's spread": "not known"
            if missing(row["baseline_spread"])
            else percent_text(row["baseline_spread"]) + (f" ({row['spread_of']})" if row["spread_of"] else ""),
            "so": SHORT[row["why"]],
        }
        for _, row in table.iterrows()
    ]
    note = (
        "Speedup over the same placement on one GPU. Spread: (fastest - slowest) / mean of the baseline's repeats; of others where the "
        "baseline was measured once: the median over repeated one-GPU points in the same framework, form of execution and shape of "
        "processes, of this model if it has any. A speedup without an interval has a side that was measured once."
    )
    if len(table) and (shared := describe(table.iloc[0], [name for name in settings if name not in differ])):
        note += f" Every row: {shared}."
    right = ["N", "speedup", "above N by", "baseline's spread"]
    if not rows:
        return table_html(pd.DataFrame(), note="No speedup exceeds the number of devices.")
    return folded(f"{plural(len(rows), 'speedup')} above the number of GPUs", table_html(pd.DataFrame(rows), note=note, right=right))


def superlinear_sentence(frame: pd.DataFrame) -> str:
    """How many speedups exceed N, how many of them noise of the baseline is enough to explain, and which it leaves unexplained."""
    table, every = superlinear(frame), scaling_table(of_today(frame))
    several = every[(every["devices"] > 1) & every["speedup"].notna() & (every["placement"] != "independent")]
    if table.empty:
        return f"Of {plural(len(several), 'speedup')}, none exceeds the number of GPUs."
    of = {why: table[table["why"] == why].sort_values("excess", ascending=False, kind="stable") for why in SHORT}
    noise = [f"{len(of[WITHIN])} with an interval that holds N"] if len(of[WITHIN]) else []
    noise += [f"{len(of[SPREAD])} by no more than repeats of the baseline, or of its kind, lie apart"] if len(of[SPREAD]) else []
    said = f"Of {plural(len(several), 'speedup')}, {len(table)} {'exceeds' if len(table) == 1 else 'exceed'} the number of GPUs."
    said += (
        f" Noise in the measurement of one GPU is enough to explain {len(of[WITHIN]) + len(of[SPREAD])}: {joined(noise)}." if noise else ""
    )
    if len(of[BEYOND]):
        once = int(of[BEYOND]["speedup_low"].isna().sum())
        few = f", {'all' if once == len(of[BEYOND]) else once} with a side measured once" if once else ""
        said += f" It leaves {len(of[BEYOND])} unexplained{few}: {_named(of[BEYOND])}."
    if len(of[NONE]):
        said += f" Of {len(of[NONE])} no repeated point on one GPU is of the baseline's kind, so nothing is said: {_named(of[NONE])}."
    return said


def _named(rows: pd.DataFrame) -> str:
    """Rows in words: "LeNet, batch 32 a GPU, Exp2, 4.85 on 2"."""
    names = []
    for _, row in rows.iterrows():
        framework = ["framework"] if row["framework"] != "torch" else []
        job = describe(row, ["model", "batch_size", *framework])
        names.append(f"{job}, {look(row['placement']).label}, {row['speedup']:.2f} on {row['devices']}")
    return "; ".join(names)
