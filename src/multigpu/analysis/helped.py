"""What Records show to have helped: the same job on as many devices, done another way, and faster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from multigpu.analysis.asked import CONDITIONS, WAY, differing, most_repeated, semantics
from multigpu.analysis.causes import all_like
from multigpu.analysis.metrics import JOB
from multigpu.analysis.ways import ratio_of

ONCE_MARGIN = 1.05
"""What was measured once has no interval: it counts as faster from this ratio on, and is said to be measured once."""

CHANGES = ("placement", *WAY)
"""What may be another way of doing the same job."""


@dataclass(frozen=True, eq=False)
class Helped:
    """A faster point of the same job. changed: the fields in which it differs; times: its rate over the asked point's, with interval."""

    row: pd.Series
    changed: tuple[str, ...]
    times: float
    low: float
    high: float

    @property
    def key(self) -> str:
        """A Record of it."""
        return str(self.row["keys"]).split(", ")[0]


def helped(frame: pd.DataFrame, points: pd.DataFrame, row: Any, most: int = 5) -> list[Helped]:
    """Points of the same job, devices and conditions that are faster, one field changed each, fastest first; then, where several
    changes together are faster than any one, the fastest of all. Independent replicas are no way of training one model, and left out.

    Faster: the whole interval of the ratio lies above 1, or, where either was measured once, the ratio is at least `ONCE_MARGIN`.
    """
    same = {name: row[name] for name in (*JOB, "scaling", "devices", *CONDITIONS)}
    rivals = most_repeated(all_like(points[points["n"] > 0], same))
    found = []
    for _, rival in rivals.iterrows():
        changed = differing(row, rival)
        if semantics(rival).kind == "independent" or not changed or set(changed) - set(CHANGES):
            continue
        times, (low, high) = ratio_of(frame, rival, row)
        if low > 1 or (pd.isna(low) and times >= ONCE_MARGIN):
            found.append(Helped(rival, tuple(changed), times, low, high))
    found.sort(key=lambda one: -one.times)
    single = [one for one in found if len(one.changed) == 1]
    further = found[:1] if found and found[0] not in single else []
    return [*further, *single][:most]
