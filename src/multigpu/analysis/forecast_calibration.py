"""How much wider a forecast's band must be, by what the other lines' held-out counts missed: split conformal prediction.

A bootstrap over launches and noise knows nothing of what the model lacks. Where the bands of other lines were too narrow for their own
held-out measurements, this one's is widened by the factor that would have made 95% of theirs wide enough. If a line's miss is as likely as
any other's to be among the largest, its widened band holds its measurement with 95% (Lei et al. 2018, doi:10.1080/01621459.2017.1307116,
with each band's own width as the scale).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from multigpu.analysis.forecast import LEVEL, HeldOut


def score(held: HeldOut) -> float:
    """How many times its half-width on the side of the measurement the band lies off, in logarithms; NaN without a band.

    1: the measurement is at the band's end; infinite where the band has no width and misses.
    """
    if held.inside is None:
        return math.nan
    miss = math.log(held.measured_s / held.predicted_s)
    end = held.high_s if miss > 0 else held.low_s
    half = math.log(end / held.predicted_s) * math.copysign(1.0, miss)
    if miss == 0:
        return 0.0
    return abs(miss) / half if half > 0 else math.inf


def factor(scores: Sequence[float], level: float = LEVEL) -> float:
    """By what bands are widened: the ceil((n + 1) level)-th smallest of n scores, the largest if n is too small for it; at least 1.

    Scores that are not finite say nothing of a width and are left out; without any the bands stay as they are.
    """
    known = sorted(value for value in scores if math.isfinite(value))
    if not known:
        return 1.0
    rank = min(len(known), math.ceil((len(known) + 1) * level))
    return max(1.0, known[rank - 1])
