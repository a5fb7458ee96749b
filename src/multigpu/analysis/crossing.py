"""From which batch on two GPUs win: the crossing point of two lines of rates, with an interval from their repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, isnan, log
from statistics import fmean

import numpy as np
import pandas as pd

DRAWS = 2000
"""Resamples behind an interval."""

USUAL = {"torch": "eager", "tensorflow": "graph"}
"""Framework -> how its plain steps run."""

Rates = Mapping[int, Sequence[float]]
"""Batch -> units a second of each repeat."""


@dataclass(frozen=True)
class Crossing:
    """batch: where the second line's rate passes the first's for good; None: `side` says on which side of what was measured.

    side: "inside"; "below": the second is ahead from the smallest batch on; "above": it is behind at the largest.
    low, high: 95% interval by resampling the repeats of each point, None where any point was measured once. An end that lies outside
        of what was measured is 0 or infinite.
    """

    batch: float | None
    side: str
    low: float | None
    high: float | None
    smallest: int
    largest: int


def crossing_of(first: Rates, second: Rates) -> Crossing | None:
    """Where `second` passes `first`, of the batches that both have; None with fewer than two.

    The ratio of the mean rates is taken to follow a straight line between neighbouring batches, both in logarithms. It crosses 1
    for good after the last batch at which the second line is not ahead.
    """
    batches = sorted(batch for batch in set(first) & set(second) if first[batch] and second[batch])
    if len(batches) < 2:
        return None
    value, side = _point(batches, [fmean(second[b]) / fmean(first[b]) for b in batches])
    low = high = None
    if all(len(line[batch]) > 1 for line in (first, second) for batch in batches):
        generator = np.random.default_rng(0)
        drawn = []
        for _ in range(DRAWS):
            means = [[float(np.mean(generator.choice(line[b], len(line[b])))) for b in batches] for line in (first, second)]
            at, where = _point(batches, [b / a for a, b in zip(*means, strict=True)])
            drawn.append({"below": 0.0, "above": float("inf")}.get(where, at or 0.0))
        low, high = (float(np.quantile(drawn, q, method="nearest")) for q in (0.025, 0.975))
    return Crossing(value, side, low, high, batches[0], batches[-1])


def _point(batches: Sequence[int], ratios: Sequence[float]) -> tuple[float | None, str]:
    behind = [index for index, ratio in enumerate(ratios) if ratio <= 1]
    if not behind:
        return None, "below"
    last = behind[-1]
    if last == len(batches) - 1:
        return None, "above"
    (x0, x1), (y0, y1) = ((log(v) for v in values[last : last + 2]) for values in (batches, ratios))
    return exp(x0 + (x1 - x0) * -y0 / (y1 - y0)), "inside"


def rates_by_batch(frame: pd.DataFrame) -> dict[int, dict[int, list[float]]]:
    """Batch of all devices together -> steps timed -> units a second of each Record with status ok."""
    found: dict[int, dict[int, list[float]]] = {}
    for _, row in frame[frame["status"] == "ok"].iterrows():
        joined = int(row["batch_size"]) * (int(row["devices"]) if row["scaling"] == "weak" else 1)
        found.setdefault(joined, {}).setdefault(int(row["timed_steps"]), []).append(float(row["units_per_s"]))
    return found


def alike(first: Mapping[int, Mapping[int, Sequence[float]]], second: Mapping[int, Mapping[int, Sequence[float]]]) -> tuple[Rates, Rates]:
    """Of each batch the rates of as many steps on both sides: of most Records on the side with fewer, and of those of most steps.

    A batch that both sides never measured over equally many steps is left out: an epoch and a few steps differ by more than placement.
    """
    chosen: tuple[dict[int, Sequence[float]], dict[int, Sequence[float]]] = ({}, {})
    for batch in set(first) & set(second):
        one, two = first[batch], second[batch]
        both = set(one) & set(two)
        if both:
            steps = max(both, key=lambda steps: (min(len(one[steps]), len(two[steps])), steps))
            chosen[0][batch], chosen[1][batch] = one[steps], two[steps]
    return chosen


def crossings(frame: pd.DataFrame, one: str = "single", others: Sequence[str] = ("tower_per_gpu", "replicated_allreduce")) -> pd.DataFrame:
    """A row a framework, model and placement of two GPUs: where it passes placement `one` on one GPU, with its interval.

    Of one process, plainly fed, differentiated and started (`USUAL`).

    Returns:
        framework, model, placement, batch, side, low, high, smallest, largest, n (fewest repeats of a point).
    """
    plain = frame[frame["feed"].isna() & (frame["scaling"] == "strong") & (frame["precision"] == "fp32")]
    plain = plain[
        (plain["execution"] == plain["framework"].map(USUAL)) & plain["embedding_gradients"].isna() & plain["processes"].eq("one")
    ]
    rows = []
    for (framework, model), group in plain.groupby(["framework", "model"], observed=True, sort=False):
        alone = rates_by_batch(group[(group["placement"] == one) & (group["devices"] == 1)])
        for placement in others:
            pair = rates_by_batch(group[(group["placement"] == placement) & (group["devices"] == 2)])
            lines = alike(alone, pair)
            found = crossing_of(*lines)
            if found:
                fewest = min(len(repeats) for line in lines for repeats in line.values())
                rows.append({"framework": framework, "model": model, "placement": placement, **found.__dict__, "n": fewest})
    columns = ["framework", "model", "placement", "batch", "side", "low", "high", "smallest", "largest", "n"]
    return pd.DataFrame(rows, columns=columns)


def crossing_text(row: Mapping[str, object]) -> str:
    """A row of `crossings` in words: "2 GPUs win from batch 700 on (410 to 980)"."""
    if row["side"] == "below":
        return f"2 GPUs win at every batch measured, from {row['smallest']} on"
    if row["side"] == "above":
        return f"1 GPU wins up to {row['largest']}, the largest batch measured"
    low, high = row["low"], row["high"]
    told = isinstance(low, float) and isinstance(high, float) and not (isnan(low) or isnan(high))
    known = f"{_end(low)} to {_end(high)}" if told else "no interval"  # type: ignore[arg-type]
    return f"2 GPUs win from batch {float(row['batch']):.0f} on ({known})"  # type: ignore[arg-type]


def _end(value: float) -> str:
    return "below what was measured" if value == 0 else "above what was measured" if value == float("inf") else f"{value:.0f}"
