"""What a reader must know beside a verdict, in words: few settings, a bound out of reach, what is excluded, a host's noise."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from multigpu.analysis.words import plural
from multigpu.claims.core import Contrast, Verdict
from multigpu.claims.results import Setting
from multigpu.claims.rules import ENOUGH
from multigpu.claims.statistics import judge
from multigpu.claims.wording import number, seldom, spread

RESTS_ON = "the verdict rests on"


def rests_on(contrast: Contrast, settings: Sequence[Setting], verdict: Verdict) -> str:
    """That a verdict rests on less than half of the settings, and how those spread that have too few repeats to decide; "" otherwise.

    Of these it is said how many point where the verdict does: by their estimates alone, which decide nothing.
    """
    deciding = sum(setting.enough and setting.verdict == verdict for setting in settings)
    few = [setting for setting in settings if not setting.enough]
    if not deciding or not few or 2 * deciding >= len(settings):
        return ""
    agreeing = sum(judge(contrast, setting.estimate, setting.estimate) == verdict for setting in few)
    settled = f" ({ENOUGH[contrast.across, verdict]})" if (contrast.across, verdict) in ENOUGH else ""
    others = "the other" if deciding + len(few) == len(settings) else "another"
    if len(few) == 1:
        how = f"{others}, {seldom(few)}, gives {spread(few, contrast)}, {'in agreement' if agreeing else 'not in agreement'} with it"
    else:
        agree = "all" if agreeing == len(few) else f"{agreeing or 'none'} of them"
        how = f"{others} {len(few)}, {seldom(few)}, run from {spread(few, contrast)}, {agree} in agreement with it"
    return f"{RESTS_ON} {deciding} of {len(settings)} settings{settled}, while {how}"


def few_settings(why: str) -> str:
    """Of a verdict's reason, the fewest settings that a part of it rests on: "1 of 20 settings"; "" where none rests on few."""
    found = re.findall(rf"{RESTS_ON} (\d+) of (\d+) settings", why)
    return min((f"{few} of {every} settings" for few, every in found), key=lambda text: int(text.split()[0]), default="")


def perfect_scaling(contrast: Contrast, settings: Sequence[Setting]) -> str:
    """Of settings that cannot reach the bound, the best that they could be and why; "" where there is none."""
    out = [setting for setting in settings if setting.verdict == "out of reach" and setting.ceiling]
    if not out:
        return ""
    ceilings = [setting.ceiling or math.nan for setting in out]
    kept = " to ".join(dict.fromkeys(f"{1 / ceiling:.1%}" for ceiling in (max(ceilings), min(ceilings))))
    best = " to ".join(dict.fromkeys(number(end, contrast, decimals=3) for end in (min(ceilings), max(ceilings))))
    where = f"in {len(out)} of {plural(len(settings), 'setting', 'settings')} " if len(settings) > 1 else ""
    bound = number(contrast.bound, contrast)
    return f"{where}what it is compared with keeps {kept} of perfect scaling, so that perfect scaling would give {best}, and not {bound}"


def excluded(contrast: Contrast, settings: Sequence[Setting]) -> str:
    """What an inconclusive interval says of the document's own effect; "" where the document states none."""
    if contrast.effect is None or not settings:
        return ""
    low, high = (max if end else min for end in (0, 1))
    ends = [(setting.low, setting.high) for setting in settings if setting.low is not None and setting.high is not None]
    if not ends:
        return ""
    first, last = low(one for one, _ in ends), high(other for _, other in ends)
    told = number(contrast.effect, contrast)
    return f"{'excludes' if not first <= contrast.effect <= last else 'does not exclude'} the document's {told}"


def noise(contrast: Contrast, settings: Sequence[Setting]) -> str:
    """That wall clock and median step disagree, with both figures of the first such setting; "" where they do not."""
    noisy = [setting for setting in settings if setting.noisy and setting.by_median is not None]
    if not noisy:
        return ""
    one = noisy[0]
    of = f" in {len(noisy)} of {plural(len(settings), 'setting', 'settings')}" if len(settings) > 1 else ""
    wall, median = number(one.estimate, contrast), number(one.by_median or math.nan, contrast)
    return f"host noise{of}: {wall} by the wall clock, {median} by the median step"
