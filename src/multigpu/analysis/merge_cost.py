"""Cost of a merge to the computing beside it.

A merge takes more of a step than its bytes over the links' rate. Its kernels share multiprocessors
and memory with those of backward, replicas are not alike, and each step has one more meeting. So a
step of one replica that computes for c seconds becomes, on P devices,

    t(P) = c + x I(P) + y c + z,    P > 1

I(P): the merge's bytes over the links (`forecast_reduction`). x: by what kind of merge it is, one
that runs beside backward, after it, or between homes. y, z: shared by all. x, y and z minimise the
sum of absolute relative errors on two devices. `merge_cost.yaml` holds them, with the
band in which 95 of 100 measured steps lie of jobs that were left out, on two devices and on more.
"""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from multigpu.analysis.boots import FORMS
from multigpu.analysis.estimate import Estimate
from multigpu.placements import find_placement

STEADY = 0.002
"""Jitter of one device's steps over their mean below which an eager step waits for no host."""
KINDS = ("beside", "after", "homes")
"""Of a merge: summed while backward runs, summed or copied after it, to and from homes."""
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


def kind_of(placement: str, bucket_send: str | None = None) -> str:
    """Return how a placement merges, one of KINDS; sums by copies always run beside backward."""
    row = find_placement(placement)
    if row.variables not in ("replica", "sharded") or row.algorithm == "central_server":
        return "homes"
    return "beside" if row.overlap or (bucket_send or "").startswith("copied") else "after"
