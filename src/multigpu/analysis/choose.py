"""Advice computed from Records: the fastest placement of each job, what is not distinguishable from it, and the distance to bounds."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from multigpu.analysis.findings import line_name, panels
from multigpu.analysis.limits import bounds
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.wording import joined, missing, percent_text, plural, rate_text, ratio_text
from multigpu.grid import device_counts

WANTED = 8
"""GPUs up to which the documents measured, and so this study's grids go."""
WORKLOAD_NAMES = {"nmt": "translation", "cnn": "image models", "deepconn": "reviews", "stacks": "layers by themselves"}
BINDINGS = {"compute": "arithmetic", "memory": "memory", "communication": "traffic"}


def overlaps(best: Any, row: Any) -> bool:
    """Whether intervals of rates do not tell a point from the best one; one measured once is a point."""
    low = best["rate"] if missing(best["rate_low"]) else best["rate_low"]
    high = row["rate"] if missing(row["rate_high"]) else row["rate_high"]
    return bool(high >= low)


def advice(frame: pd.DataFrame) -> pd.DataFrame:
    """The fastest placement of each job on each number of devices, among points with an interval; independent replicas left out.

    Returns:
        workload, job, devices, placement, rate, rate_low, rate_high, unit, speedup_best (and bounds), ceiling_ratio (and bounds),
        equals (placements whose interval overlaps the fastest one's), slowest and its share of the fastest rate.
    """
    table = scaling_table(frame)
    table = table[(table["placement"] != "independent") & table["rate_low"].notna()]
    rows = []
    for name, panel in panels(table):
        for devices, group in panel.groupby("devices", sort=True):
            if len(group) < 2:
                continue
            ordered = group.sort_values("rate", ascending=False)
            best, worst = ordered.iloc[0], ordered.iloc[-1]
            equals = [line_name(row, panel) for _, row in ordered.iloc[1:].iterrows() if overlaps(best, row)]
            kept = ["rate", "rate_low", "rate_high", "unit"]
            kept += [f"{ratio}{end}" for ratio in ("speedup_best", "ceiling_ratio") for end in ("", "_low", "_high")]
            rows.append(
                {
                    "workload": str(best["workload"]),
                    "job": name,
                    "devices": int(str(devices)),
                    "placement": line_name(best, panel),
                    **{column: best[column] for column in kept},
                }
                | {"equals": ", ".join(equals), "slowest": line_name(worst, panel), "slowest_share": worst["rate"] / best["rate"]}
            )
    return pd.DataFrame(rows)


def advice_table(frame: pd.DataFrame) -> Shown:
    """`advice` in words: a table a workload of every job on its most devices, and folded a table a job on all numbers of devices."""
    table = advice(frame)
    if table.empty:
        return table_html(table, note="No job has two placements with an interval yet.")
    rows = [
        {
            "workload": f"{WORKLOAD_NAMES.get(row['workload'], row['workload'])}, each job on its most GPUs",
            "job": row["job"],
            "GPUs": str(row["devices"]),
            "fastest": row["placement"],
            "rate": rate_text(row["rate"], unit=row["unit"]),
            "over the best single GPU": _times(row),
            "share of independent replicas": _ceiling_cell(row),
            "not distinguishable": row["equals"] or "–",
            "slowest, and its share": f"{row['slowest']}: {percent_text(row['slowest_share'])}",
        }
        for _, row in table.iterrows()
    ]
    note = (
        "Fastest: those behind “or” have intervals that overlap its own. The best single GPU is the job's fastest in whatever way it was "
        "done, so a slower way may stay below it on several GPUs. Independent replicas are those done in the same way. The slowest's share "
        "is of the fastest's rate. 95% intervals, none where either side was measured once."
    )
    every = pd.DataFrame(rows)
    most = every[table["devices"].eq(table.groupby("job")["devices"].transform("max"))]
    also = ["" if equals == "–" else f", or {equals}" for equals in most["not distinguishable"]]
    most = most.assign(fastest=most["fastest"] + also).drop(columns=["share of independent replicas", "not distinguishable"])
    shown = tables_by(most, "workload", note, ["GPUs", "rate"], ["job", "fastest"])
    rest = tables_by(every.drop(columns="workload"), "job", "", ["GPUs", "rate"])
    folded = f"<details><summary>{plural(table['job'].nunique(), 'job')} on every number of GPUs</summary>{rest.html}</details>\n"
    return Shown(shown.html + (folded if len(most) < len(every) else ""))


def _times(row: Any) -> str:
    """The rate over the best single GPU's with its interval, without the word that its heading says."""
    return ratio_text(row["speedup_best"], row["speedup_best_low"], row["speedup_best_high"]).replace(" times", "")


def _ceiling_cell(row: Any) -> str:
    """The share of the ceiling with its interval, or that no independent replicas were measured so."""
    known = not missing(row["ceiling_ratio"])
    return percent_text(row["ceiling_ratio"], row["ceiling_ratio_low"], row["ceiling_ratio_high"]) if known else "not measured"


def point_bound(limits: pd.DataFrame, row: Any) -> tuple[float, str, float]:
    """(bound in units/s, what sets it, share of it that was reached) of one point: the means over its own Records alone.

    Args:
        limits: of `limits.bounds`.
        row: of `summary` or `scaling_table`; its `keys` name the Records, so points that differ in any field never mix.
    """
    own = limits[limits["key"].isin(str(row["keys"]).split(", "))]
    if own.empty:
        return math.nan, "", math.nan
    return float(own["bound"].mean()), str(own["binding"].iloc[0]), float(own["share_of_bound"].mean())


def unmeasured_sentence(frame: pd.DataFrame, wanted: int = WANTED, grid: str = "headline") -> str | None:
    """On which of 1, 2, 4 ... `wanted` GPUs these Records have no point, and what measures there; None where they have all.

    Args:
        grid: whose command is named.
    """
    measured = frame[frame["status"].eq("ok") & frame["device_type"].eq("cuda")]
    lacking = [str(count) for count in device_counts(wanted) if count not in set(measured["devices"])]
    if not lacking:
        return None
    found = joined([str(count) for count in sorted(set(measured["devices"]))])
    has = f"these Records are of {found} {'GPU' if found == '1' else 'GPUs'}" if found else "no Record is of a GPU"
    command = f"python -m multigpu measure --grid {grid} --devices {','.join(lacking)}"
    return f"Nothing here says what {joined(lacking)} GPUs do: {has}. `{command}` measures the rest where there are as many."


def of_this_gpu(frame: pd.DataFrame, ours: pd.DataFrame) -> pd.DataFrame:
    """The rows of every machine with the kind of GPU that `ours` has: what one of them reaches does not depend on the others."""
    return frame[frame["gpu"].isin(set(ours["gpu"]))]


def bound_table(frame: pd.DataFrame) -> Shown:
    """Each headline point on the most devices, with its bound, what sets the bound, and the share of it that was reached."""
    table, limits = scaling_table(frame), bounds(frame)
    rows = []
    for name, panel in panels(table[table["tier"] == "headline"]):
        for _, row in panel[panel["devices"] == panel["devices"].max()].sort_values("rate", ascending=False).iterrows():
            limit, binding, share = point_bound(limits, row)
            rows.append(
                {
                    "job": name,
                    "GPUs": str(row["devices"]),
                    "placement": line_name(row, panel),
                    "rate": rate_text(row["rate"], unit=row["unit"]),
                    "bound": rate_text(limit, unit=row["unit"]),
                    "set by": BINDINGS.get(binding, "unknown"),
                    "reached": percent_text(share),
                }
            )
    return tables_by(pd.DataFrame(rows), "job", "" if rows else "No headline point yet.", ["GPUs", "rate", "bound", "reached"])
