"""What each cause took of the lost speedup and gave in speed: the ways of one cause along a chain added up, with bounds.

Along a chain the logarithms of speedups, and of rates, add up, so a cause's part is a sum with a weight for each way: 1 where a way
of this cause ends, -1 where it begins. Ways are measured independently, so that half the width of a sum's interval is the root of
the summed squares of its parts'. The published protocol alone is not: it is the same Records timed twice, and what it changes
(`_Chain.protocol`) varies by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from multigpu.analysis.lost_speed import CEILING, REST
from multigpu.analysis.wording import missing

BY_CAUSE: dict[str, str] = {
    "cause": "string",
    **dict.fromkeys(("share", "share_low", "share_high", "faster", "faster_low", "faster_high"), "float64"),
}


@dataclass(frozen=True)
class _Chain:
    """Logarithms of one figure of the ways that were measured, in order.

    values, halves: of each way, with half the width of its 95% interval (NaN: measured once). protocol: half the width of what the
    second row changes, where the first is the same Records timed as published; None: no such row.
    """

    values: Sequence[float]
    halves: Sequence[float]
    protocol: float | None

    def half(self, weights: Mapping[int, float], protocol: float = 0.0) -> float:
        """Half the width of a weighted sum of ways, and of what the protocol changes so many times; the first way is not in it."""
        parts = [weight * self.halves[way] for way, weight in weights.items() if weight]
        parts += [protocol * self.protocol] if protocol and self.protocol is not None else []
        return math.sqrt(sum(part * part for part in parts))

    def of_first(self, weights: Mapping[int, float]) -> tuple[dict[int, float], float]:
        """The same sum without the first way, if that is the second one timed otherwise; and how often it holds that difference."""
        found = dict(weights)
        first = found.pop(0, 0.0) if self.protocol is not None else 0.0
        if first:
            found[1] = found.get(1, 0.0) + first
        return found, -first


def _weights(causes: Sequence[str], cause: str) -> dict[int, float]:
    """1 for a way of this cause, -1 for the way before it; ways between two of one cause cancel."""
    found: dict[int, float] = {}
    for way, own in enumerate(causes):
        if way and own == cause:
            found[way] = found.get(way, 0.0) + 1.0
            found[way - 1] = found.get(way - 1, 0.0) - 1.0
    return found


def _logs(rows: pd.DataFrame, name: str, low: str, step: str) -> _Chain:
    values = [math.log(value) for value in rows[name]]
    halves = [math.log(value / bound) for value, bound in zip(rows[name], rows[low], strict=True)]
    protocol = None
    if rows["published"].iloc[0] and len(rows) > 1:
        protocol = math.log(rows[step].iloc[1] / rows[f"{step}_low"].iloc[1])
    return _Chain(values, halves, protocol)


def by_cause(table: pd.DataFrame) -> pd.DataFrame:
    """A row a cause of one chain, in the order in which they first change something, then what is left over.

    Args:
        table: of `lost_speed.chain_table`.

    Returns:
        share: of what the first way lost, adding up to 1, with 95% bounds. faster: the product of what its ways change in the rate of all
        devices, with bounds; all of them multiply to what the last way trains over the first. The ceiling, which trains no common model,
        has a part in shares alone, and what is left over has no rate. Bounds are NaN where a way that they need was measured once, and
        shares where nothing was lost.
    """
    told = table[table["speedup"].notna() & ~(table["way"].eq(CEILING) & table["cause"].eq(""))]
    if len(told) < 2:
        return _frame([])
    devices = int(told["devices"].iloc[0])
    speedups, rates = _logs(told, "speedup", "low", "gain"), _logs(told, "rate", "rate_low", "faster")
    causes = [str(cause) for cause in told["cause"]]
    joint = [cause if way != CEILING else "" for cause, way in zip(causes, told["way"], strict=True)]
    lost = math.log(devices) - speedups.values[0]
    rows: list[dict[str, Any]] = []
    for cause in dict.fromkeys(causes[1:]):
        rows.append({"cause": cause} | _share(speedups, _weights(causes, cause), 0.0, lost) | _faster(rates, _weights(joint, cause)))
    if lost > 0:
        rest = _share(speedups, {len(causes) - 1: -1.0}, math.log(devices), lost)
        rows.append({"cause": REST} | rest | dict.fromkeys(("faster", "faster_low", "faster_high"), math.nan))
    return _frame(rows)


def _share(chain: _Chain, weights: dict[int, float], more: float, lost: float) -> dict[str, float]:
    """A sum over what was lost, whose own width (that of the first way) counts too."""
    if lost <= 0:
        return dict.fromkeys(("share", "share_low", "share_high"), math.nan)
    share = (more + sum(weight * chain.values[way] for way, weight in weights.items())) / lost
    slopes = {way: weight / lost for way, weight in weights.items()}
    slopes[0] = slopes.get(0, 0.0) + share / lost
    half = chain.half(*chain.of_first(slopes))
    return {"share": share, "share_low": share - half, "share_high": share + half}


def _faster(chain: _Chain, weights: dict[int, float]) -> dict[str, float]:
    if not weights:
        return dict.fromkeys(("faster", "faster_low", "faster_high"), math.nan)
    value = sum(weight * chain.values[way] for way, weight in weights.items())
    half = chain.half(*chain.of_first(weights))
    return {"faster": math.exp(value), "faster_low": math.exp(value - half), "faster_high": math.exp(value + half)}


def _frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in BY_CAUSE.items()})


def told_apart(found: pd.DataFrame) -> list[str]:
    """The causes whose share surely is not 0: their bounds lie on one side of it."""
    sure = found["share_low"].gt(0) | found["share_high"].lt(0)
    return [str(cause) for cause in found.loc[sure, "cause"] if not missing(cause)]
