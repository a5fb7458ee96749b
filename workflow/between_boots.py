"""Write how far points differ between boots of a host, among the committed Records.

`src/multigpu/analysis/between_boots.yaml` holds it, by form of execution. Run this after new
Records are committed: `PYTHONPATH=src python workflow/between_boots.py`.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy.stats import norm, t

from multigpu import paths
from multigpu.analysis.boots import FREEDOM, TABLE, Sample
from multigpu.analysis.read import frames
from multigpu.analysis.statistics import LEVEL, half_width

DAYS = 0.12
"""The deviation between days of launched steps that verdicts must stand: pairs of days that were
nearer each other, by chance, do not make it less.
"""


def repeated_points(table: Iterable[Sample]) -> pd.DataFrame:
    """Return the A/A table: a row for two boots of one point, one after the other: form, point (a
    number), apart (of logarithms), within (its variance without boots), freedom, least (repeats).
    Points whose boots have one repeat each tell nothing of their own.
    """
    rows = []
    for point, one in enumerate(table):
        if one.form and sum(boot.n for boot in one.boots) > len(one.boots) > 1:
            for a, b in zip(one.boots, one.boots[1:], strict=False):
                within = one.variance * (1 / a.n + 1 / b.n)
                rows.append(
                    (one.form, point, abs(a.mean - b.mean), within, one.freedom, min(a.n, b.n))
                )
    return pd.DataFrame(rows, columns=["form", "point", "apart", "within", "freedom", "least"])


def width(spread: Any, within: Any, freedom: Any) -> Any:
    """Return half the width of the interval of a difference between two boots of one each."""
    between = 2 * np.asarray(spread, dtype=float) ** 2
    total = between + within
    return half_width(total, total**2 / (between**2 / FREEDOM + within**2 / freedom))


def needed(pairs: pd.DataFrame) -> np.ndarray:
    """Return the least spread at which each pair's interval holds 0, by bisection."""
    low, high = np.zeros(len(pairs)), np.full(len(pairs), 10.0)
    for _ in range(40):
        middle = (low + high) / 2
        holds = pairs["apart"].to_numpy() <= width(
            middle, pairs["within"].to_numpy(), pairs["freedom"].to_numpy()
        )
        low, high = np.where(holds, low, middle), np.where(holds, middle, high)
    return high


def estimated(pairs: pd.DataFrame) -> dict[str, float]:
    """Return each form's spread between boots: the least at which intervals hold the truth in 95 of
    100 pairs of boots of one point (rounded up, as one more pair is to be held).
    """
    found = {}
    for form, own in pairs.groupby("form"):
        ordered = np.sort(needed(own))
        place = math.ceil(LEVEL * (len(own) + 1)) - 1
        found[str(form)] = float(ordered[min(place, len(own) - 1)])
    return found


def held_without_itself(pairs: pd.DataFrame) -> pd.Series:
    """Return whether each pair's interval holds 0, with the spread estimated from all other
    points.
    """
    held = pd.Series(False, index=pairs.index)
    for _, own in pairs.groupby("form"):
        for _, mine in own.groupby("point"):
            (spread,) = estimated(own.drop(mine.index)).values()
            half = width(spread, mine["within"].to_numpy(), mine["freedom"].to_numpy())
            held[mine.index] = mine["apart"].to_numpy() <= half
    return held


def at_least(spread: float, days: float = DAYS) -> float:
    """The spread, or the one at which 95 of 100 intervals hold what days so far apart do."""
    return max(spread, days * norm.ppf((1 + LEVEL) / 2) / t.ppf((1 + LEVEL) / 2, FREEDOM))


def main() -> None:
    """Write the table, and say how wide intervals across boots then are."""
    pairs = repeated_points(frames(paths.RUNS)[1]["sample"].dropna())
    found = {}
    for form, spread in estimated(pairs).items():
        own = pairs[pairs["form"] == form]
        if form == "eager":
            print(f"eager as measured: {spread:.5f}")
            spread = float(at_least(spread))
        found[form] = {
            "spread": round(spread, 5),
            "pairs": len(own),
            "points": int(own["point"].nunique()),
        }
        half = width(spread, own["within"].to_numpy(), own["freedom"].to_numpy())
        print(f"{form}: {found[form]}, half of an interval: {sorted(half)[len(half) // 2]:.1%}")
    held = held_without_itself(pairs)
    print(f"each point left out of its own estimate: {held.sum()} of {len(held)} are held")
    TABLE.write_text(yaml.safe_dump(found))


if __name__ == "__main__":
    main()
