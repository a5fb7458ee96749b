"""Compare training curves: whether replicas learn what one device does, but for rounding."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.words import MODELS, plural
from multigpu_study.analysis.columns import columns

WINDOW = 10
"""Points that are averaged before curves are compared: all runs share one batch's noise."""

ALLOWED = 3.0
"""A placement may lie so many times as far from the fp64 curve as fp32 led the reference."""

ROUNDING = {"fp64": 2.0**-29, "fp32": 1.0}
"""How large an error of rounding is in a precision, over fp32's (53 bits against 24)."""

PANEL = tuple(columns("curve_panel"))
"""What runs share whose curves are compared."""


def curve_distance(
    loss: Sequence[float] | np.ndarray, reference: Sequence[float] | np.ndarray
) -> float:
    """The largest relative difference of means over successive windows; inf: unequal lengths."""
    if len(loss) != len(reference):
        return math.inf
    ours, theirs = (
        np.array([np.mean(curve[at : at + WINDOW]) for at in range(0, len(curve), WINDOW)])
        for curve in (loss, reference)
    )
    return float(np.max(np.abs(ours - theirs) / np.abs(theirs)))


def same_curve_table(frame: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """Joined placements beside the reference, where fp64 says what no rounding would give.
    A panel is what runs share apart from placement, precision and execution, without staged ones,
    named by its rate where that differs. Its truth is ddp in fp64, or where there is none (GPUs) in
    fp32. Its drift is how far ddp in fp32 lies from the truth, or where fp32 is the truth, the
    median distance of all. tolerance = ALLOWED x drift x ROUNDING: fp64 is held to 2^-29 of what
    rounding did in fp32.

    role: "reference" (the truth beside itself), "yardstick" (the run whose distance is the drift:
        it cannot miss three times that), "compared", or "free" (need not follow). replicas: the
        distance of independent replicas (NaN: none were trained).
    same: of what is compared. None: nothing is told, as it lies within a tolerance that independent
        replicas would keep too, or of which no replicas show what it can tell; and of all else.
    """
    own = list(columns("curve_run"))
    plain = (
        frame["status"].eq("ok")
        & frame["schedule"].eq("constant")
        & frame["rate_scaling"].eq("none")
    )
    losses: dict[Any, np.ndarray] = {
        key: group["loss"].to_numpy() for key, group in curves.groupby("key")
    }
    tables = [
        pd.DataFrame(
            columns=["panel", *own, "role", "distance", "drift", "tolerance", "replicas", "same"]
        )
    ]
    for _, panel in frame[plain & frame["semantics"].ne("stale")].groupby(
        list(PANEL), sort=False, dropna=False
    ):
        keys = (
            panel[panel["placement"].eq("ddp") & panel["execution"].eq("eager")]
            .set_index("precision")["key"]
            .to_dict()
        )
        if panel["placement"].nunique() < 2 or not keys:
            continue
        truth = "fp64" if "fp64" in keys else next(iter(keys))
        yardstick = keys.get("fp32") if truth == "fp64" else None
        distance = panel["key"].map(
            {key: curve_distance(losses[key], losses[keys[truth]]) for key in panel["key"]}
        )
        joined = panel["semantics"].eq("joined")
        moved = distance[joined & panel["precision"].eq("fp32") & distance.gt(0)]
        if yardstick:
            drift = float(distance[panel["key"].eq(yardstick)].iloc[0])
        elif len(moved):
            drift = float(moved.median())
        else:
            drift = 0.0
        tolerance = ALLOWED * drift * panel["precision"].map(ROUNDING).fillna(1.0).astype("float64")
        replicas = distance[panel["semantics"].eq("independent")].min()
        held = joined & panel["precision"].isin(list(ROUNDING))
        role = np.select(
            [panel["key"].eq(keys[truth]), panel["key"].eq(yardstick or ""), held],
            ["reference", "yardstick", "compared"],
            "free",
        )
        told = (role == "compared") & ((distance > tolerance) | (replicas > tolerance))
        same = distance.le(tolerance).astype(object).where(told, None)
        first = panel.iloc[0]
        name = (
            f"{MODELS.get(first['model'], first['model'])} on {first['inputs']},"
            f" {plural(int(first['devices']), 'device')}"
        )
        found = {
            "role": role,
            "distance": distance,
            "drift": drift,
            "tolerance": tolerance,
            "replicas": replicas,
            "same": same,
        }
        tables.append(panel[own].assign(panel=name, **found))
    table = pd.concat(tables[1:] or tables)[tables[0].columns]
    order = table.assign(order=pd.factorize(table["panel"])[0]).sort_values(
        ["order", "base_rate"], kind="stable"
    )
    table = order.drop(columns="order").reset_index(drop=True)
    several = table.groupby("panel")["base_rate"].transform("nunique") > 1
    table.loc[several, "panel"] = [
        f"{name}, rate {rate:g}"
        for name, rate in table.loc[several, ["panel", "base_rate"]].to_numpy()
    ]
    return table
