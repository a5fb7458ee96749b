"""Cost of a merge to the computing beside it: learned from all jobs on two devices, tested on more.

A merge takes more of a step than its bytes over the links' rate. Its kernels share multiprocessors
and memory with those of backward, replicas are not alike, and each step has one more meeting. So a
step of one replica that computes for c seconds becomes, on P devices,

    t(P) = c + x I(P) + y c + z,    P > 1

I(P): the merge's bytes over the links (`forecast_reduction`). x: by what kind of merge it is, one
that runs beside backward, after it, or between homes. y, z: shared by all. x, y and z minimise the
sum of absolute relative errors on two devices (`learned`). `merge_cost.yaml` holds them, with the
band in which 95 of 100 measured steps lie of jobs that were left out, on two devices and on more.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from scipy.optimize import linprog

from multigpu.analysis.boots import FORMS
from multigpu.analysis.collectives import collectives_frame
from multigpu.analysis.estimate import Estimate
from multigpu.analysis.fields import SERIES
from multigpu.analysis.forecast_lines import NETWORK, demand_of_point, measured_links
from multigpu.analysis.forecast_reduction import Links, NoFormula, reduction_seconds
from multigpu.analysis.points import where
from multigpu.analysis.read import frames
from multigpu.analysis.statistics import LEVEL
from multigpu.placements import find_placement

KINDS = ("beside", "after", "homes")
"""Of a merge: summed while backward runs, summed or copied after it, to and from homes."""
STEADY = 0.002
"""Jitter of one device's steps over their mean below which an eager step waits for no host."""
FEWEST = 8
"""Jobs of a form from which its costs are learned."""
SAME = ("machine", "placement", "model", "batch_size", "devices", "n")
TAKEN = (
    *SAME,
    *("execution", "processes", "jitter_s", "step_time_s", "rate", "workload", "unit"),
    *("wire_dtype", "all_reduce_spec", "model_parallel"),
)
TABLE = Path(__file__).parent / "merge_cost.yaml"


class MergeCost(NamedTuple):
    """What a merge costs a step. beside, after, homes: seconds a second of I(P), by its kind.
    share: of the computing (y). meeting_s: z. low, high: the ends of the band of the measured step
    over the forecast one. pairs: of counts of a job, by which the band is known.
    """

    beside: float
    after: float
    homes: float
    share: float
    meeting_s: float
    low: float
    high: float
    pairs: int

    def lost_s(self, kind: str, merge_s: float, compute_s: float) -> float:
        """Return the seconds of a step that merging costs: of a merge of this kind that takes
        `merge_s` over the links, beside a replica that computes for `compute_s`.
        """
        return float(getattr(self, kind)) * merge_s + self.share * compute_s + self.meeting_s


def merged(
    units: float,
    devices: int,
    one_s: Sequence[float],
    merge_s: float,
    kind: str,
    cost: MergeCost,
    unit: str,
) -> Estimate:
    """Return the rate on devices of which one alone takes `one_s` (middle, longest, shortest) for
    its units, with the band of its form; replicas that merge nothing lose nothing.
    """
    lost_s = cost.lost_s(kind, merge_s, one_s[0]) if merge_s > 0 else 0.0
    slower, faster = (cost.high, cost.low) if merge_s > 0 else (1.0, 1.0)
    middle, low, high = devices * units / (np.array(one_s) + lost_s)
    return Estimate(float(middle), float(low) / slower, float(high) / faster, unit=unit)


@cache
def merge_costs() -> dict[str, MergeCost]:
    """Return the cost of a merge by the form of execution (`form_of`)."""
    return {form: MergeCost(**one) for form, one in yaml.safe_load(TABLE.read_text()).items()}


def cost_of(execution: str, processes: str, jitter: float = math.nan) -> MergeCost:
    """Return what a merge costs a step of this form; jitter: of one device's steps over their mean
    (NaN: unknown, which counts as waiting for the host).
    """
    return merge_costs()[form_of(execution, processes, jitter)]


def form_of(execution: str, processes: str, jitter: float) -> str:
    """Return the form of execution as far as costs of merging go: captured, steady or eager, or
    dispatched by one process for all devices.
    """
    if processes == "one":
        return "dispatched"
    if FORMS[execution] == "captured":
        return "captured"
    return "steady" if jitter < STEADY else "eager"


def kind_of(placement: str) -> str:
    """Return what kind of merge a placement has: one of KINDS."""
    row = find_placement(placement)
    if row.variables not in ("replica", "sharded") or row.algorithm == "central_server":
        return "homes"
    return "beside" if row.overlap else "after"


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


def learned(pairs: pd.DataFrame) -> np.ndarray:
    """Return x of each kind, y and z with the least sum of absolute relative errors on two devices,
    none negative; a kind that no pair has costs its links' time.
    """
    two = pairs[pairs["devices"].eq(2)]
    scale = two["step_s"].to_numpy()[:, None]
    columns, lost = _columns(two) / scale, (1 - two["compute_s"] / two["step_s"]).to_numpy()
    rows, unknown = columns.shape
    apart = np.eye(rows)
    solved = linprog(
        np.r_[np.zeros(unknown), np.ones(2 * rows)],
        A_eq=np.c_[columns, apart, -apart],
        b_eq=lost,
        bounds=[(0, None)] * (unknown + 2 * rows),
    ).x[:unknown]
    absent = [not two["kind"].eq(kind).any() for kind in KINDS]
    solved[: len(KINDS)] = np.where(absent, 1.0, solved[: len(KINDS)])
    return np.asarray(solved)


def forecast_s(pairs: pd.DataFrame, coefficients: np.ndarray) -> pd.Series:
    """Return the step that these costs forecast for each pair, s."""
    return pairs["compute_s"] + _columns(pairs) @ coefficients


def left_out(pairs: pd.DataFrame) -> pd.Series:
    """Return each pair's measured step over the one forecast by costs that were learned from all
    other models on two devices.
    """
    found = pd.Series(np.nan, index=pairs.index)
    for _, form in pairs.groupby("form"):
        for model, own in form.groupby("model"):
            others = form[form["model"].ne(model)]
            told_s = forecast_s(own, learned(others if others["devices"].eq(2).any() else form))
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


def cost_table(pairs: pd.DataFrame) -> dict[str, MergeCost]:
    """Return every form's costs and band, of forms with at least FEWEST pairs on two devices."""
    ratios = left_out(pairs)
    found = {}
    for form, own in pairs.groupby("form"):
        if own["devices"].eq(2).sum() >= FEWEST:
            band = band_of(ratios[own.index])
            beside, after, homes, share, meeting_s = map(float, learned(own))
            found[str(form)] = MergeCost(
                beside, after, homes, share, meeting_s, *band, pairs=len(own)
            )
    return found


def committed(runs: Path) -> pd.DataFrame:
    """Return the pairs (`merges`) of all GPUs in a folder of Runs whose links were measured."""
    every = where(frames(runs)[1], device_type="cuda")
    sums = where(collectives_frame(runs.parent / "collectives"), status="ok", dtype="fp32")
    links = {
        str(machine): measured_links(str(own["gpu"].iloc[0]), where(sums, machine=machine), NETWORK)
        for machine, own in every.groupby("machine")
    }
    return merges(every, {machine: one for machine, one in links.items() if one is not None})
