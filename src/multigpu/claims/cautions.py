"""What a reader must know beside a verdict: how few settings it rests on, and where perfect scaling itself would not reach the bound."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy

from multigpu.claims.core import Contrast, Predicate, Selection, Setting, Verdict
from multigpu.claims.records import Comparison, Row
from multigpu.claims.settings import judge, measure
from multigpu.claims.wording import described, number, plural, seldom, spread

ENOUGH: dict[tuple[str, Verdict], str] = {
    ("any", "holds"): "one example is enough",
    ("all", "does not hold"): "one counterexample is enough",
}
"""By how settings join, a contrast's verdict that one of them settles, whatever else was measured or was not; in words."""

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


def perfect_scaling(contrast: Contrast, pairs: Sequence[tuple[Comparison, Setting]], predicate: Predicate) -> str:
    """Of a ratio of two scaling efficiencies that is to be large: where the efficiency below is so high that perfect scaling of the one
    above, 100%, would not reach the bound; "" where there is no such setting.

    The largest ratio is one over the efficiency below, with the interval of that efficiency's own repeats.
    """
    tops = [(one, largest_ratio(contrast, one, predicate)) for one, _ in pairs]
    most = [(one, top) for one, top in tops if top is not None and top.estimate < contrast.bound]
    if not most:
        return ""
    shares = [1 / top.estimate for _, top in most]
    kept = " to ".join(dict.fromkeys(f"{share:.1%}" for share in (min(shares), max(shares))))
    ratio = spread([top for _, top in most], contrast, least_decimals=3)
    beyond = f"{number(contrast.bound, contrast)} is out of reach there"
    if any(top.high is None or top.high >= contrast.bound for _, top in most):
        beyond += ", as far as these repeats tell"
    if len(pairs) > 1:
        return (
            f"in {len(most)} of {len(pairs)} settings the latter keeps {kept} of perfect scaling already, so that perfect scaling of the "
            f"former would give {ratio}: {beyond}"
        )
    (one, top), (above, *_, below) = most[0], contrast.terms
    own, other = (named_side(term.select, group[0]) for term, group in ((above, one.groups[0]), (below, one.groups[-1])))
    low, high = (number(end, contrast, bare=True, decimals=3) if end else "" for end in (top.low, top.high))
    return (
        f"on {plural(one.devices, *predicate.counted)} {other} keeps {kept} of perfect scaling already, so that perfect scaling of {own} "
        f"would give {ratio}{f' (95% {low}-{high})' if low and high else ''}: {beyond}"
    )


def largest_ratio(contrast: Contrast, comparison: Comparison, predicate: Predicate) -> Setting | None:
    """The ratio if the Runs above scaled perfectly: the inverse of the efficiency of those below; None where it is no such ratio."""
    if contrast.direction != "above" or contrast.quantity != "units_per_s" or contrast.per_device:
        return None
    if not contrast.of_speedups:
        return None
    one, many = contrast.over[1], contrast.under[1]
    inverse = contrast.model_copy(update={"over": (one,), "under": (many,), "per_device": True})
    below = copy(comparison)
    below.groups = [comparison.groups[1], comparison.groups[3]]
    return measure(inverse, below, predicate)


def named_side(selection: Selection, row: Row) -> str:
    """The Runs of one side in words, by the values that its Records have: "batch 16 a GPU"."""
    return described(tuple((field, (row.get(field),)) for field, _ in selection))
