"""Occasions: stretches of measuring on one host. Machines of one name are equal, but another day it may be another of them.

Repeats of a headline point come from several launches, and its interval counts launches where they differ. Two points that were measured
on different occasions differ by more than that if occasions do: how much more is seen where one point was measured on several.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

from multigpu.analysis.formulas import pooled_rate
from multigpu.analysis.metrics import POINT
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import FRAMEWORK_NAMES, execution_text, missing, percent_text, plural
from multigpu.placements import find_placement

PAUSE_S = 240.0
"""Records that do not say which start of the host they are of belong to one occasion until nothing came for so long, longer than any Run
takes."""

KIND = ("framework", "processes", "execution", "on_host")
COLUMNS = {
    **dict.fromkeys(("framework", "processes", "execution"), "string"),
    "on_host": "bool",
    "points": "int64",
    **dict.fromkeys(("same", "different", "most"), "float64"),
}


def occasions(frame: pd.DataFrame) -> pd.Series:
    """Of every Record, a number of its occasion, from 0 in order of time; on one machine each start of the host is one."""
    numbers = pd.Series(0, index=frame.index, dtype="int64")
    at = pd.to_datetime(frame["measured_at"])
    count = 0
    for _, machine in frame.assign(_at=at).sort_values("_at", kind="stable").groupby("machine", sort=True):
        known = machine["boot"].fillna("").ne("")
        for _, started in machine[known].groupby("boot", sort=False):
            numbers[started.index] = count
            count += 1
        silent = machine[~known]
        later = silent["_at"].diff().dt.total_seconds().gt(PAUSE_S).cumsum()
        numbers[silent.index] = count + later
        count += int(later.max()) + 1 if len(later) else 0
    return numbers


def launch_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a point and kind of pair of launches: how far two launches of the same point are apart, on one occasion or on two.

    Returns:
        framework, processes, execution, on_host (`Placement.uses_host`), same (whether the launches are of one occasion), gap (the
        median over its pairs of exp(|ln of the rates' ratio|) - 1), most (the largest).
    """
    ok = frame[frame["status"].eq("ok") & frame["neighbours"].eq(0)]
    ok = ok.assign(_occasion=occasions(ok))
    rows = []
    for _, own in ok.groupby([*POINT], dropna=False, sort=False):
        launches = [
            (int(launch["_occasion"].iloc[0]), pooled_rate(launch["units"].to_numpy(float), launch["wall_s"].to_numpy(float)))
            for _, launch in own.groupby("launch_id", sort=False)
        ]
        gaps: dict[bool, list[float]] = {}
        for (one, rate), (other, other_rate) in combinations(launches, 2):
            gaps.setdefault(one == other, []).append(float(np.expm1(abs(np.log(rate / other_rate)))))
        first = own.iloc[0]
        what = {name: first[name] for name in KIND[:3]} | {"on_host": find_placement(str(first["placement"])).uses_host}
        rows += [what | {"same": same, "gap": float(np.median(found)), "most": max(found)} for same, found in gaps.items()]
    return pd.DataFrame(rows, columns=[*KIND, "same", "gap", "most"])


def occasion_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """`launch_gaps` by kind of Run, of points that were measured on two occasions or more.

    Returns:
        framework, processes, execution, on_host, points; medians over points of the gap of two launches of the same and of different
        occasions (NaN: none), and the largest gap between occasions.
    """
    gaps = launch_gaps(frame)
    rows = []
    for key, own in gaps.groupby([*KIND], sort=True):
        apart, together = own[~own["same"].astype(bool)], own[own["same"].astype(bool)]
        if apart.empty:
            continue
        found = {"points": len(apart), "same": together["gap"].median(), "different": apart["gap"].median(), "most": apart["most"].max()}
        rows.append(dict(zip(KIND, key, strict=True)) | found)
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()})


def occasion_finding(frame: pd.DataFrame) -> str:
    """How many occasions there were, and what two of them differ by."""
    ok = frame[frame["status"].eq("ok")]
    count = occasions(ok).nunique() if len(ok) else 0
    gaps = launch_gaps(frame)
    apart = gaps[~gaps["same"].astype(bool)] if len(gaps) else gaps
    if apart.empty:
        return f"The Records are of {plural(count, 'occasion')}; no point was measured on two of them."
    together = gaps[gaps["same"].astype(bool)]
    beside = "" if together.empty else f", two launches of one occasion by {percent_text(float(together['gap'].median()))}"
    return (
        f"The Records are of {plural(count, 'occasion')}. Two launches of one point on different ones differ by "
        f"{percent_text(float(apart['gap'].median()))} in the median of {plural(len(apart), 'point')}{beside}; at most by "
        f"{percent_text(float(apart['most'].max()))}."
    )


def occasion_table(frame: pd.DataFrame) -> Shown:
    """`occasion_gaps` in words."""
    rows = [
        {
            "steps": f"{FRAMEWORK_NAMES[row['framework']]}, {execution_text(row['execution'])}",
            "processes": "one" if row["processes"] == "one" else "one a device",
            "variables or tables": "on the host" if row["on_host"] else "on devices",
            "points": str(row["points"]),
            "of one occasion": "–" if missing(row["same"]) else f"{100 * row['same']:.2f}",
            "of two": f"{100 * row['different']:.2f}",
            "of two, most": f"{100 * row['most']:.1f}",
        }
        for _, row in occasion_gaps(frame).iterrows()
    ]
    note = (
        "How far two launches of the same point are apart, in percent of the slower one's rate: medians over points, and the most of any. "
        "Only what was measured on two occasions counts. Intervals of this report count launches; a point whose launches were all of one "
        "occasion knows of no other."
    )
    figures = ("points", "of one occasion", "of two", "of two, most")
    return table_html(pd.DataFrame(rows), right=figures, note=note if rows else "No point was measured on two occasions.")
