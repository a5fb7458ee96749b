"""One contrast over its settings: its verdict, and what is said of it and must be known beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from multigpu.analysis.words import joined, plural
from multigpu.claims.core import Contrast, Predicate, Verdict
from multigpu.claims.results import Setting
from multigpu.claims.rules import DECIDED, ENOUGH, Joined, join, settled
from multigpu.claims.statistics import judge
from multigpu.claims.wording import figure, number, seldom, spread, stated, tallied


def unmeasured(contrast: Contrast, settings: Sequence[Setting], counted: tuple[str, str]) -> str:
    """The device counts that a contrast names and these settings do not decide, in words; counted: what a count is of, one and many."""
    if not isinstance(contrast.counts, tuple) or all(term.devices for term in contrast.terms):
        return ""
    measured, able = ({s.devices for s in settings if s.enough or not least} for least in (False, True))
    none, few = [n for n in contrast.counts if n not in measured], [n for n in contrast.counts if n in measured - able]
    parts = [(none, "not measured"), (few, "measured too seldom to decide")]
    return ", ".join(f"{joined([str(n) for n in counts])} {counted[counts != [1]]} {how}" for counts, how in parts if counts)


class Part(NamedTuple):
    """A contrast's verdict with what is said of it: why, what stands beside it, its figure, and where it holds if here only."""

    contrast: Contrast
    verdict: Verdict
    reason: str = ""
    asides: list[str] = []
    gap: str = ""
    here: str = ""
    scopes: tuple[str, ...] = ()
    text: str = ""
    shown: list[Setting] = []
    of: frozenset[tuple[float, tuple[str, ...]]] = frozenset()


def part_of(contrast: Contrast, settings: list[Setting], predicate: Predicate) -> Part:
    """A contrast's verdict over its settings, and what is said of it."""
    joined_ = join(contrast, settings)
    verdict, able = joined_.verdict, [setting for setting in settings if setting.enough]
    gap = unmeasured(contrast, settings, predicate.counted) if verdict in DECIDED and not settled(contrast, verdict) else ""
    here = ""
    if verdict in ("holds", "holds here only") and gap:
        counts = sorted({setting.devices for setting in able})
        verdict, here = "holds here only", f"on {joined([str(count) for count in counts])} {predicate.counted[counts != [1]]}"
    if contrast.size and verdict == "does not hold":
        here = f"without the document's size ({stated(contrast)} is not so)"
    shown = able or settings
    further = [setting for setting in settings if not setting.enough] if able else []
    text = figure(deciding_first(shown, verdict), contrast, further, named(predicate, contrast))
    of = frozenset((one.estimate, one.record_keys) for one in shown)
    return Part(
        contrast,
        verdict,
        reason_of(contrast, able, settings, joined_, predicate),
        asides(contrast, settings, verdict),
        gap,
        here,
        joined_.scopes,
        text,
        shown,
        of,
    )


def scopes_of(parts: Sequence[Part]) -> list[str]:
    """Where contrasts hold that hold here only: of those that keep the same fields apart, where all of them do."""
    common: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for part in parts:
        if part.scopes:
            common.setdefault(part.contrast.apart, []).append(part.scopes)
    shared = [[name for name in scopes[0] if all(name in other for other in scopes)] for scopes in common.values()]
    return [joined(names) for names in shared if names] + list(dict.fromkeys(part.here for part in parts if part.here))


def reason_of(contrast: Contrast, able: Sequence[Setting], settings: Sequence[Setting], joined_: Joined, predicate: Predicate) -> str:
    """Why a contrast's verdict is not a plain yes or no."""
    if not able:
        n, launches = max((s.n, s.launches) for s in settings)
        least = f"{predicate.min_n} repeats over {plural(predicate.min_launches, 'launch', 'launches')} are needed on each side"
        found = "one repeat is screening" if n == 1 else f"at most {n} over {plural(launches, 'launch', 'launches')}"
        return f"{contrast.label}: {found}; {least}"
    verdicts = [setting.verdict for setting in able]
    holds, fails = verdicts.count("holds"), verdicts.count("does not hold")
    tally = f"{contrast.label}: {tallied(holds, fails, able)}"
    if joined_.outvoted:
        few = [setting for setting in settings if not setting.enough]
        return f"{tally}; {len(few)} settings measured too seldom to decide mostly point elsewhere ({spread(few, contrast)})"
    if joined_.verdict in DECIDED:
        return "" if len(able) == max(holds, fails) else tally
    models = {model for setting in able for model in str(setting.fields.get("model")).split(" / ")}
    if len(models) < contrast.models_at_least and len(able) == max(holds, fails):
        return f"{tally}; measured for {plural(len(models), 'model', 'models')} of at least {contrast.models_at_least}"
    open_ones = [setting for setting in able if setting.verdict in ("inconclusive", "out of reach")]
    said = [f"{contrast.label}: the interval straddles {number(contrast.bound, contrast)}" if len(able) == 1 and open_ones else tally]
    said.append(excluded(contrast, open_ones))
    return "; ".join(filter(None, said))


def asides(contrast: Contrast, settings: Sequence[Setting], verdict: Verdict) -> list[str]:
    """What must be known beside the verdict of a contrast: few settings, noise, a bound that was out of reach."""
    few = rests_on(contrast, settings, verdict) if verdict in DECIDED else ""
    return [text for text in (few, noise(contrast, [s for s in settings if s.enough]), perfect_scaling(contrast, settings)) if text]


def deciding_first(settings: Sequence[Setting], verdict: Verdict) -> list[Setting]:
    """Settings as a reader wants them: those that say what the verdict says before others, and the most devices first."""
    return sorted(settings, key=lambda setting: (setting.verdict != verdict, -setting.devices, str(setting.fields)))


def named(predicate: Predicate, contrast: Contrast) -> tuple[str, ...]:
    """What is said of every setting: the model, unless the predicate has one only or its sides are of two."""
    one = any(field == "model" and len(values) == 1 for field, values in predicate.where + contrast.where)
    return () if one or "model" in contrast.varied else ("model",)


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
    return f"the verdict rests on {deciding} of {len(settings)} settings{settled}, while {how}"


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
