"""Compute again what the study misread: days taken for alike, machines pooled, a baseline without
the same kernels.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from multigpu.analysis.boots import FORMS
from multigpu.analysis.compare import ENDS, best_single, equal_rows, kernels_of, ratio_columns
from multigpu.analysis.fields import JOB, POINT


def days_apart(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for every two boots of a host that both repeated a Run: its form of execution,
    how far apart their rates are, and whether their 95% intervals told them apart.

    frame: a row a Record. ratio: the larger mean rate over the smaller. missed: by Welch's t-test
        of the two boots' own repeats 1 is no ratio that they could have, which is so of one pair
        in twenty if boots do not differ. n: repeats of both. keys: their Records.
    """
    ok = frame[frame["status"].eq("ok") & frame["boot"].fillna("").ne("")]
    ok = ok.assign(_point=ok.groupby(list(POINT), sort=False, dropna=False).ngroup())
    ok = ok[ok.groupby(["_point", "boot"])["key"].transform("size").gt(1)]
    ok = ok[ok.groupby("_point")["boot"].transform("nunique").gt(1)]
    found: list[Mapping[str, Any]] = []
    for _, point in ok.groupby("_point"):
        for (_, first), (_, second) in combinations(point.groupby("boot", sort=False), 2):
            a, b = (np.log(own["units_per_s"].to_numpy(dtype=float)) for own in (first, second))
            found.append(
                {
                    "form": FORMS[str(point["execution"].iloc[0])],
                    "ratio": float(np.exp(abs(a.mean() - b.mean()))),
                    "missed": bool(stats.ttest_ind(a, b, equal_var=False).pvalue < 0.05),
                    "n": len(a) + len(b),
                    "keys": ", ".join([*first["key"], *second["key"]]),
                }
            )
    return pd.DataFrame(found, columns=["form", "ratio", "missed", "n", "keys"])


def share_missed(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return of each form of `days_apart` how many pairs there are, the share that was missed with
    its 95% interval (Wilson), and the largest ratio.
    """
    rows = pairs.groupby("form", sort=False).agg(
        pairs=("missed", "size"), missed=("missed", "sum"), most=("ratio", "max")
    )
    bounds = [
        stats.binomtest(int(row["missed"]), int(row["pairs"])).proportion_ci(method="wilson")
        for _, row in rows.iterrows()
    ]
    return rows.assign(
        share=rows["missed"] / rows["pairs"],
        share_low=[one.low for one in bounds],
        share_high=[one.high for one in bounds],
    ).reset_index()


def pooled_advice(points: pd.DataFrame) -> pd.DataFrame:
    """Return the jobs of which several machines together say that one GPU is fastest, while a
    machine that measured one GPU and two, launched alike, says two.

    points: of all machines, repeated ones. Returns two rows a job: model, batch_size, read
    ("machines pooled" or "within one machine"), ratio (the fastest on two GPUs over the fastest on
    one, with its interval within one machine), machine, n, keys, base_keys.
    """
    alike = [name for name in JOB if name not in ("machine", "cpu")]
    rows = points[points["devices"].le(2) & points["placement"].ne("independent")]
    rows = rows.sort_values("rate", ascending=False, kind="stable")
    best = rows.drop_duplicates([*alike, "devices"])
    one, two = (best[best["devices"].eq(count)] for count in (1, 2))
    pooled = _over(two, one, alike)
    best = rows.drop_duplicates([*JOB, "execution", "devices"])
    one, two = (best[best["devices"].eq(count)] for count in (1, 2))
    within = _over(two, one, [*JOB, "execution"]).sort_values("rate", ascending=False)
    within = within.drop_duplicates(alike)
    pooled, within = pooled.reset_index(drop=True), within.reset_index(drop=True)
    places = equal_rows(pooled, within, alike)
    pooled, within = (
        side.reindex(places[number]).reset_index(drop=True)
        for number, side in enumerate((pooled, within))
    )
    wrong = pooled["ratio"].lt(1) & within["ratio"].gt(1)
    pooled = pooled.assign(read="machines pooled", ratio_low=np.nan, ratio_high=np.nan)
    within = within.assign(read="within one machine")
    return pd.concat([pooled[wrong], within[wrong]]).sort_index(kind="stable")


def _over(own: pd.DataFrame, base: pd.DataFrame, on: list[str]) -> pd.DataFrame:
    """Return the rows of `own` that have a counterpart with these columns, with the ratio to it."""
    places = equal_rows(own.reset_index(drop=True), base.reset_index(drop=True), on)
    own, base = (
        side.reset_index(drop=True).reindex(places[number]).reset_index(drop=True)
        for number, side in enumerate((own, base))
    )
    return own.assign(base_keys=base["keys"]).join(ratio_columns(own, base, "ratio"))


def over_library(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points on several GPUs, their batch growing with them, and the efficiency that
    they have over one GPU of the same form that runs the library's kernels: `over`, with its
    interval. It credits faster kernels to further GPUs.
    """
    rows = points[points["n"].gt(0)].reset_index(drop=True)
    plain = [{field for field, _ in used} <= {"layout"} for used in kernels_of(rows)]
    base = best_single(rows[np.array(plain, dtype=bool)])
    several = rows[rows["devices"].gt(1) & rows["scaling"].eq("weak")]
    found = _over(several, base, [*JOB, "execution"])
    return found.assign(**{f"over{end}": found[f"ratio{end}"] / found["devices"] for end in ENDS})
