"""Learn what merging costs from the committed Records (`multigpu.analysis.merge_cost`), and test it
on models that were left out.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linprog

from multigpu.analysis.collectives import collectives_frame
from multigpu.analysis.fields import SERIES
from multigpu.analysis.forecast_lines import NETWORK, demand_of_point, measured_links
from multigpu.analysis.forecast_reduction import Links, NoFormula, reduction_seconds
from multigpu.analysis.merge_cost import KINDS, MergeCost, form_of, kind_of
from multigpu.analysis.points import where
from multigpu.analysis.read import frames
from multigpu.analysis.statistics import LEVEL

SAME = ("machine", "placement", "model", "batch_size", "devices", "n")
TAKEN = (
    *SAME,
    *("execution", "processes", "jitter_s", "step_time_s", "rate", "workload", "unit"),
    *("wire_dtype", "all_reduce_spec", "model_parallel"),
)


def merges(points: pd.DataFrame, links: Mapping[str, Links]) -> pd.DataFrame:
    """Pair every weakly scaled point on several devices with its own series on one, of a machine.

    links: of each machine's GPUs. Returns a row a pair: machine, form, kind, placement, model,
    batch_size, devices, compute_s (the step on one device), merge_s (I(P)), step_s.
    """
    chosen = points[
        points["n"].gt(0)
        & points["scaling"].eq("weak")
        & points["placement"].ne("independent")
        & points["machine"].isin(list(links))
    ]
    numbers = chosen.groupby(list(SERIES), dropna=False, sort=False).ngroup()
    series: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for number, row in zip(numbers, chosen[list(TAKEN)].to_dict("records"), strict=True):
        series[number].append({str(name): value for name, value in row.items()})
    found = []
    for rows in series.values():
        one = next((row for row in rows if row["devices"] == 1), None)
        with suppress(NoFormula):
            found += [_pair(one, row, links) for row in rows if one and row["devices"] > 1]
    return pd.DataFrame(found, columns=[*SAME, "form", "kind", "compute_s", "merge_s", "step_s"])


def _pair(one: Mapping[str, Any], row: Mapping[str, Any], links: Mapping[str, Links]) -> Any:
    jitter = one["jitter_s"] / one["step_time_s"]
    demand = demand_of_point(one, float(one["rate"]) * float(one["step_time_s"]))
    return {name: row[name] for name in SAME} | {
        "form": form_of(one["execution"], one["processes"], jitter),
        "kind": kind_of(row["placement"]),
        "compute_s": float(one["step_time_s"]),
        "merge_s": sum(reduction_seconds(demand, int(row["devices"]), links[one["machine"]])),
        "step_s": float(row["step_time_s"]),
    }


def _columns(pairs: pd.DataFrame) -> np.ndarray:
    """Return what each coefficient multiplies (s), a row a pair."""
    kinds = [pairs["merge_s"].where(pairs["kind"].eq(kind), 0.0) for kind in KINDS]
    return np.array([*kinds, pairs["compute_s"], np.ones(len(pairs))], dtype=float).T


LIKE_CAPTURED = ("steady", "eager")
"""Forms that run the kernels of captured steps: only the host launches them otherwise."""
COSTS = MergeCost._fields[: len(KINDS) + 2]
OF_KERNELS = [COSTS.index(name) for name in ("beside", "after", "share")]
"""Costs that do not depend on who launches. Captured steps tell them best: they wait for nobody."""


def learned(pairs: pd.DataFrame, known: dict[int, float] | None = None) -> np.ndarray:
    """Return x of each kind, y and z with the least sum of absolute relative errors on two devices,
    none negative; a kind that no pair has costs its links' time. known: costs by their places that
    are not to be learned.
    """
    two = pairs[pairs["devices"].eq(2)]
    scale = two["step_s"].to_numpy()[:, None]
    columns, lost = _columns(two) / scale, (1 - two["compute_s"] / two["step_s"]).to_numpy()
    (rows, unknown), apart = columns.shape, np.eye(len(two))
    absent = [place for place, kind in enumerate(KINDS) if not two["kind"].eq(kind).any()]
    fixed = dict.fromkeys(absent, 1.0) | (known or {})
    bounds = [(fixed.get(place, 0), fixed.get(place)) for place in range(unknown)]
    solved = linprog(
        np.r_[np.zeros(unknown), np.ones(2 * rows)],
        A_eq=np.c_[columns, apart, -apart],
        b_eq=lost,
        bounds=[*bounds, *[(0, None)] * (2 * rows)],
    )
    return np.asarray(solved.x[:unknown])


def learned_of(form: str, pairs: pd.DataFrame) -> np.ndarray:
    """Return a form's costs (`learned`), those of kernels from captured pairs where these tell."""
    captured, known = pairs[pairs["form"].eq("captured")], {}
    if form in LIKE_CAPTURED and captured["devices"].eq(2).any():
        costs = learned(captured)
        known = {place: float(costs[place]) for place in OF_KERNELS}
    return learned(pairs[pairs["form"].eq(form)], known)


def forecast_s(pairs: pd.DataFrame, coefficients: np.ndarray) -> pd.Series:
    """Return the step that these costs forecast for each pair, s."""
    return pairs["compute_s"] + _columns(pairs) @ coefficients


def left_out(pairs: pd.DataFrame) -> pd.Series:
    """Return each pair's measured step over the one forecast by costs that were learned from all
    other models on two devices.
    """
    found = pd.Series(np.nan, index=pairs.index)
    for form, every in pairs.groupby("form"):
        for model, own in every.groupby("model"):
            others = pairs[pairs["model"].ne(model)]
            alone = not (others["form"].eq(form) & others["devices"].eq(2)).any()
            told_s = forecast_s(own, learned_of(str(form), pairs if alone else others))
            found[own.index] = own["step_s"] / told_s
    return found


def band_of(ratios: pd.Series) -> tuple[float, float]:
    """Return between which ends the next ratio lies with 95%: the outer ranks of n + 1, at most the
    extremes; 1 always lies between.
    """
    ordered = np.sort(ratios.to_numpy())
    rank = max(0, math.floor((len(ordered) + 1) * (1 - LEVEL) / 2) - 1)
    return min(1.0, float(ordered[rank])), max(1.0, float(ordered[-1 - rank]))


def held_without_itself(pairs: pd.DataFrame, ratios: pd.Series) -> pd.Series:
    """Return whether each pair lies in the band of its form that pairs of all other models give."""
    held = pd.Series(False, index=pairs.index)
    for _, form in pairs.groupby("form"):
        for model, own in form.groupby("model"):
            others = ratios[form.index[form["model"].ne(model)]]
            if len(others):
                low, high = band_of(others)
                held[own.index] = ratios[own.index].between(low, high)
    return held


def committed(runs: Path) -> pd.DataFrame:
    """Return the pairs (`merges`) of all GPUs in a folder of Runs whose links were measured."""
    every = where(frames(runs)[1], device_type="cuda")
    sums = where(collectives_frame(runs.parent / "collectives"), status="ok", dtype="fp32")
    links = {
        str(machine): measured_links(str(own["gpu"].iloc[0]), where(sums, machine=machine), NETWORK)
        for machine, own in every.groupby("machine")
    }
    return merges(every, {machine: one for machine, one in links.items() if one is not None})
