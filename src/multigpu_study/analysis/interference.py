"""Measure how other work on a machine changes a Run's rate: another launch, another occasion."""

import numpy as np
import pandas as pd

from multigpu.analysis.compare import versus
from multigpu.analysis.fields import POINT
from multigpu.analysis.points import points
from multigpu.placements import find_placement

KIND = ("framework", "processes", "execution", "on_host")


def launch_ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Of points with at least two repeats in each of two launches: the second's rate over the
    first's (`versus`), and holds_one.
    """
    ordered = frame[frame["status"].eq("ok")].sort_values("measured_at", kind="stable")
    each = points(ordered, by=[*POINT, "launch_id"])
    each = each[each["n"] > 1]
    number = each.groupby([*POINT], dropna=False, sort=False).cumcount()
    found = versus(each[number.eq(1)], each[number.eq(0)], but=())
    return found.assign(holds_one=found["ratio_low"].le(1) & found["ratio_high"].ge(1))


def launch_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a point and kind of pair of launches: how far two launches of the same point are apart,
    on one occasion (a boot of the host) or on two.
    on_host: `Placement.uses_host`. same: of one occasion. gap: the median over pairs of exp(|ln of
        the rates' ratio|) - 1; most: the most.
    """
    ok = frame[frame["status"].eq("ok") & frame["neighbours"].eq(0)]
    ok = ok.assign(
        occasion=ok["boot"], point=ok.groupby([*POINT], dropna=False, sort=False).ngroup()
    )
    ok["on_host"] = ok["placement"].map(lambda name: find_placement(name).uses_host)
    each = ok.groupby(["point", "launch_id"], sort=False)
    launches = (
        each[[*KIND, "occasion"]]
        .first()
        .assign(rate=each["units"].sum() / each["wall_s"].sum())
        .reset_index()
    )
    launches["place"] = launches.index
    pairs = launches.merge(
        launches[["point", "place", "occasion", "rate"]], on="point", suffixes=("", "_other")
    )
    pairs = pairs[pairs["place"] < pairs["place_other"]]
    gap = np.expm1(np.abs(np.log((pairs["rate"] / pairs["rate_other"]).astype("float64"))))
    pairs = pairs.assign(same=pairs["occasion"].eq(pairs["occasion_other"]), gap=gap)
    found = pairs.groupby(["point", *KIND, "same"], sort=False)["gap"].agg(gap="median", most="max")
    return found.reset_index().drop(columns="point")
