"""The rules that turn intervals into verdicts, each a function: ceilings, many looks, scopes, a majority, frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from multigpu.analysis.statistics import holm_of_families
from multigpu.claims.core import DECIDED, LEVEL, Contrast, Verdict
from multigpu.claims.results import Answer, Setting
from multigpu.claims.wording import SAYINGS

ENOUGH: dict[tuple[str, Verdict], str] = {
    ("any", "holds"): "one example is enough",
    ("all", "does not hold"): "one counterexample is enough",
}
"""By how settings join, a contrast's verdict that one of them settles, whatever else was measured or was not; in words."""


class Joined(NamedTuple):
    """The verdict of a contrast over its settings; scopes: the values of `apart` for which it holds, where that is not all."""

    verdict: Verdict
    scopes: tuple[str, ...] = ()
    outvoted: bool = False


def judge(contrast: Contrast, low: float, high: float) -> Verdict:
    """The verdict of one interval, as if it were the only one."""
    bound = contrast.bound
    if contrast.direction == "above":
        holds, fails = low >= bound, high < bound
    elif contrast.direction == "below":
        holds, fails = high <= bound, low > bound
    else:
        inside, outside = low >= 1 / bound and high <= bound, high < 1 / bound or low > bound
        holds, fails = (inside, outside) if contrast.direction == "within" else (outside, inside)
    return "holds" if holds else "does not hold" if fails else "inconclusive"


def leans(contrast: Contrast, setting: Setting) -> Verdict:
    """The verdict of an estimate alone, which decides nothing."""
    return judge(contrast, setting.estimate, setting.estimate)


def after_many_looks(settings: Sequence[tuple[Contrast, Setting]]) -> list[Setting]:
    """The settings of one claim with their verdicts: Holm within those of one model, and again over the models.

    What is noisy is inconclusive, and what cannot reach its bound is out of reach, whatever its interval says.
    """
    looked = [setting for _, setting in settings if setting.holding is not None]
    models = [setting.fields.get("model") for setting in looked]
    holding, failing = (iter(holm_of_families([getattr(one, name) for one in looked], models)) for name in ("holding", "failing"))

    def ruled(contrast: Contrast, setting: Setting) -> Verdict:
        held, failed = (setting.holding is not None and next(chances) <= LEVEL for chances in (holding, failing))
        if setting.ceiling is not None and setting.ceiling < contrast.bound:
            return "out of reach"
        return "inconclusive" if setting.noisy else "holds" if held else "does not hold" if failed else "inconclusive"

    return [setting.model_copy(update={"verdict": ruled(contrast, setting)}) for contrast, setting in settings]


def join(contrast: Contrast, settings: Sequence[Setting]) -> Joined:
    """The verdict of a contrast: over the scopes that it keeps apart, or over all its settings at once."""
    if not contrast.apart:
        return _over(contrast, settings)
    scopes = [_scope(contrast, setting.fields | {"devices": setting.devices}) for setting in settings]
    found = {
        name: _over(contrast, [setting for own, setting in zip(scopes, settings, strict=True) if own == name]).verdict
        for name in sorted(set(scopes))
    }
    holding, failing = (tuple(name for name in found if found[name] == verdict) for verdict in ("holds", "does not hold"))
    if holding:
        return Joined("holds") if len(holding) == len(found) else Joined("holds here only", holding)
    if failing:
        return Joined("does not hold" if len(failing) == len(found) or contrast.across == "all" else "inconclusive")
    return _over(contrast, settings)


def _scope(contrast: Contrast, fields: Mapping[str, object]) -> str:
    return ", ".join(SAYINGS["scopes"][name].format(fields.get(name) or "usual") for name in contrast.apart)


def _over(contrast: Contrast, settings: Sequence[Setting]) -> Joined:
    able = [setting for setting in settings if setting.enough]
    within_reach = [setting for setting in able if setting.verdict != "out of reach"]
    if not within_reach:
        return Joined("out of reach" if able else "inconclusive")
    verdicts = [setting.verdict for setting in within_reach]
    holds, fails, count = verdicts.count("holds"), verdicts.count("does not hold"), len(within_reach)
    most_hold, most_fail = 2 * holds > count, 2 * fails > count
    held, failed = {
        "any": (holds > 0, fails == count),
        "all": (most_hold and not fails, fails > 0),
        "most": (most_hold, most_fail),
        "same": (most_hold and not fails, most_fail and not holds),
    }[contrast.across]
    verdict: Verdict = "holds" if held else "does not hold" if failed else "inconclusive"
    if verdict == "inconclusive" or (contrast.across, verdict) in ENOUGH:
        return Joined(verdict)
    if len(set().union(*(setting.models for setting in within_reach))) < contrast.models_at_least:
        return Joined("inconclusive")
    deciding, agreeing, few = support(contrast, settings, verdict)
    outvoted = 2 * deciding < len(settings) and 2 * agreeing < few
    return Joined("inconclusive", outvoted=True) if outvoted else Joined(verdict)


def support(contrast: Contrast, settings: Sequence[Setting], verdict: Verdict) -> tuple[int, int, int]:
    """How many settings decide a verdict; how many too seldom measured lean to it, and of how many."""
    few = [setting for setting in settings if not setting.enough]
    deciding = sum(setting.enough and setting.verdict == verdict for setting in settings)
    return deciding, sum(leans(contrast, setting) == verdict for setting in few), len(few)


def all_of(verdicts: Sequence[tuple[Verdict, bool]]) -> Verdict:
    """The verdict of what must hold together: one that does not refutes all, unless it only says how large the effect is (True)."""
    must = [verdict for verdict, size in verdicts if not size] or [verdict for verdict, _ in verdicts]
    worst_first = ("does not hold", "out of reach", "not yet measured", "inconclusive", "holds here only", "holds")
    overall = min(must, key=worst_first.index)
    sizes = {verdict for verdict, size in verdicts if size}
    if overall == "holds" and sizes & {"does not hold", "out of reach", "holds here only"}:
        return "holds here only"
    return "inconclusive" if overall == "holds" and sizes & {"inconclusive", "not yet measured"} else overall


def blocked_by(answers: Mapping[str, Answer]) -> list[str]:
    """The undecided frameworks that have more settings with enough repeats than those that decide, or as many that point elsewhere."""
    decided = [answer for answer in answers.values() if answer.verdict in DECIDED]
    count, fails = sum(answer.decidable for answer in decided), {answer.verdict == "does not hold" for answer in decided}
    undecided = [(name, one, {one.leaning == "does not hold"}) for name, one in answers.items() if one.verdict == "inconclusive"]
    return [name for name, one, fail in undecided if one.decidable > count or (one.decidable == count and fail != fails)]


def leaning(contrasts: Sequence[tuple[Contrast, Sequence[Setting]]]) -> Verdict:
    """What must hold together by the estimates alone: it does not where most settings of a contrast say so."""
    for contrast, settings in contrasts:
        against = sum(leans(contrast, setting) == "does not hold" for setting in settings)
        if settings and 2 * against > len(settings) and not contrast.size:
            return "does not hold"
    return "holds"
