"""How many repeats would decide what is inconclusive, if what was measured so far is how things are."""

from __future__ import annotations

import math

from scipy import special

from multigpu.analysis.words import plural
from multigpu.claims.core import LEVEL, Contrast
from multigpu.claims.results import Result, Setting

POWER = 0.8
"""The chance of a decision that is asked for."""
MOST = 1000


def repeats_needed(contrast: Contrast, setting: Setting, looks: int = 1) -> int | None:
    """Repeats of each side that decide a setting with a chance of 80%, its estimate and its scatter being what they seem.

    looks: among so many the level is divided, as Holm's first is. None: more than a thousand, there is no interval, or it is no ratio's.
    """
    if contrast.form != "ratio" or setting.low is None or setting.high is None or min(setting.low, setting.estimate) <= 0 or setting.n < 2:
        return None
    half = math.log(setting.high / setting.low) / 2
    error = half / float(special.stdtrit(setting.n - 1, 1 - LEVEL)) * math.sqrt(setting.n)  # of one repeat
    bounds = (contrast.bound, 1 / contrast.bound) if contrast.two_sided else (contrast.bound,)
    gap = min(abs(math.log(setting.estimate / bound)) for bound in bounds)
    for n in range(setting.n, MOST):
        reach = float(special.stdtrit(n - 1, 1 - LEVEL / looks) + special.stdtrit(n - 1, POWER))
        if gap >= reach * error / math.sqrt(n):
            return n
    return None


def needed(result: Result) -> str:
    """Of an inconclusive claim, what its open settings would take: the least, in words; "" of any other."""
    told = []
    tests = result.claim.predicates if result.verdict == "inconclusive" else ()
    for predicate, contrast in ((one, contrast) for one in tests for contrast in one.contrasts):
        own = [one for one in result.settings if one.contrast == contrast.label and one.verdict == "inconclusive"]
        if counts := [count for one in own if (count := repeats_needed(contrast, one, max(result.looks, 1)))]:
            least = plural(max(predicate.min_n, min(counts)), "repeat")
            told.append(f"{contrast.label}: {least} a side in the nearest of {plural(len(own), 'open setting')}")
    return "; ".join(told)
