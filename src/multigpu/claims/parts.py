"""One contrast over its settings: its verdict, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from multigpu.analysis.words import joined, plural
from multigpu.claims.cautions import excluded, noise, perfect_scaling, rests_on
from multigpu.claims.core import Contrast, Predicate, Verdict
from multigpu.claims.results import Setting
from multigpu.claims.rules import DECIDED, Joined, join, settled
from multigpu.claims.wording import figure, number, spread, stated, tallied


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
