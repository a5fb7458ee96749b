"""Measure how other work on a machine changes a Run's rate: neighbours in other lanes, another of
equal GPUs, another launch, another occasion.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.compare import equal_rows, ratio_columns, versus
from multigpu.analysis.fields import POINT
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points
from multigpu.placements import find_placement
from multigpu.records.record import Record
from multigpu_study.analysis.columns import columns

ALLOWED = 1.005
"""The study's rule: Runs may share a machine only where none slows by more than 0.5%."""

RUN = list(columns("lane_run"))
"""What makes two Records of lanes the same Run in a lane of as many cores."""

COLUMNS = list(columns("interference"))
LANES = ["machine", "run", "framework", "execution", "devices", "ratio", "low", "high", "gpus", "n"]


def verdict_of(low: Any, high: Any) -> np.ndarray:
    """Decide by intervals: "may share", "disturbed" or "not shown"; NaN shows nothing."""
    return np.select([high <= ALLOWED, low > ALLOWED], ["may share", "disturbed"], "not shown")


def _points(records: Iterable[Record], *more: str) -> pd.DataFrame:
    """The measured Runs of lanes, repeats pooled, by `RUN`, GPUs and `more`, in order of these."""
    known = [
        (record, record.lane)
        for record in records
        if record.lane and record.measurement and not record.run.traced_steps
    ]
    told = [
        (record.run.label(), record.run.digest, lane.cores, tuple(lane.gpus))
        for record, lane in known
    ]
    frame = frame_of(record for record, _ in known)
    by = [*RUN, "gpus", *more]
    return points(
        frame.join(
            pd.DataFrame(told, columns=["run", "digest", "cores", "gpus"], index=frame.index)
        ),
        by,
    ).sort_values(by)


def _beside(own: pd.DataFrame, base: pd.DataFrame, on: Sequence[str]) -> pd.DataFrame:
    """Each of `own` beside the one of `base` that equals it in `on`: n_base; ratio, low, high:
    seconds a step over the base's.
    """
    at = equal_rows(own.reset_index(drop=True), base.reset_index(drop=True), on)
    own, base = (
        side.iloc[at[number]].reset_index(drop=True) for number, side in enumerate((own, base))
    )
    found = ratio_columns(base, own, "ratio").rename(
        columns={"ratio_low": "low", "ratio_high": "high"}
    )
    return own.assign(n_base=base["n"]).join(found)


def interference_table(records: Iterable[Record]) -> pd.DataFrame:
    """A row a Run measured alone and beside neighbours: step time over that alone, with bounds."""
    found = _points(records, "neighbours")
    table = _beside(
        found[found["neighbours"].gt(0)], found[found["neighbours"].eq(0)], [*RUN, "gpus"]
    )
    table = table.assign(
        lanes=table["neighbours"] + 1, verdict=verdict_of(table["low"], table["high"])
    )
    named = table.rename(columns={"n": "n_shared", "n_base": "n_alone"})[COLUMNS]
    return named.sort_values(["machine", "framework", "devices", "run", "lanes"], ignore_index=True)


def lanes_table(records: Iterable[Record]) -> pd.DataFrame:
    """Each lane's mean step time over the first lane's, all measuring side by side."""
    found = _points(record for record in records if record.lane and record.lane.neighbours)
    first = found["gpus"].eq(found.groupby(RUN)["gpus"].transform("first"))
    table = _beside(found[~first], found[first], RUN)
    table["gpus"] = [", ".join(map(str, gpus)) for gpus in table["gpus"]]
    return table[LANES].sort_values(
        ["machine", "framework", "devices", "run", "gpus"], ignore_index=True
    )


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
