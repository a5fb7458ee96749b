"""A against A: how far two launches of one point are apart, on one occasion and on two.

An occasion is a stretch of measuring on one host. Machines of one name are equal, but another day it may be another of them.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

from multigpu.analysis.compare import ratio_columns
from multigpu.analysis.fields import POINT
from multigpu.analysis.points import points
from multigpu.placements import find_placement

PAUSE_S = 240.0
"""Records that do not say which start of the host they are of belong to one occasion until nothing came for so long, longer than any Run
takes."""

KIND = ("framework", "processes", "execution", "on_host")


def launch_ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Of every point with at least two repeats in each of two launches: the second launch's rate over the first's, in order of time.

    The interval is that of any ratio of the study (95%, Welch's t on log rates): about one in twenty misses 1 by chance if launches do
    not matter. More say that launches differ, and that repeats within one launch understate the spread.

    Returns:
        `fields.POINT`, n and keys of the second launch, base_n of the first, ratio with ratio_low and ratio_high, holds_one.
    """
    ordered = frame[frame["status"].eq("ok")].sort_values("measured_at", kind="stable")
    each = points(ordered, by=[*POINT, "launch_id"])
    each = each[each["n"] > 1]
    number = each.groupby([*POINT], dropna=False, sort=False).cumcount()
    first, second = (each[number.eq(wanted)] for wanted in (0, 1))
    pairs = second.merge(first, on=list(POINT), suffixes=("", "_base"), validate="1:1")
    sample = ["rate", "log_variance", "log_freedom", "n", "keys"]
    ratios = ratio_columns(pairs[sample], pairs[[f"{name}_base" for name in sample]].set_axis(sample, axis=1), "ratio")
    found = pd.concat([pairs[[*POINT, "n", "keys"]], pairs["n_base"].rename("base_n"), ratios], axis=1)
    return found.assign(holds_one=ratios["ratio_low"].le(1) & ratios["ratio_high"].ge(1))


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
            (int(launch["_occasion"].iloc[0]), float(launch["units"].sum() / launch["wall_s"].sum()))
            for _, launch in own.groupby("launch_id", sort=False)
        ]
        gaps: dict[bool, list[float]] = {}
        for (one, rate), (other, other_rate) in combinations(launches, 2):
            gaps.setdefault(one == other, []).append(float(np.expm1(abs(np.log(rate / other_rate)))))
        first = own.iloc[0]
        what = {name: first[name] for name in KIND[:3]} | {"on_host": find_placement(str(first["placement"])).uses_host}
        rows += [what | {"same": same, "gap": float(np.median(found)), "most": max(found)} for same, found in gaps.items()]
    return pd.DataFrame(rows, columns=[*KIND, "same", "gap", "most"])
