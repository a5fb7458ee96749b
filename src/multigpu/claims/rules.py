"""The rules that turn intervals into verdicts, each a function: ceilings, host noise, many looks, scopes, a majority, frameworks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from multigpu.analysis.statistics import holm_of_families
from multigpu.claims.core import LEVEL, Contrast, Verdict
from multigpu.claims.results import Answer, Setting
from multigpu.claims.statistics import judge

DECIDED: tuple[Verdict, ...] = ("holds", "holds here only", "does not hold")
ENOUGH: dict[tuple[str, Verdict], str] = {
    ("any", "holds"): "one example is enough",
    ("all", "does not hold"): "one counterexample is enough",
}
"""By how settings join, a contrast's verdict that one of them settles, whatever else was measured or was not; in words."""
TOLERATED = 0.01
"""How far two clocks may differ (on a log scale) without a meaning: a mean is no median."""


SCOPES = {
    "batch_norm": "{} batch norm",
    "batch_size": "batch {}",
    "devices": "P = {}",
    "gradients": "K = {}",
    "placement": "{}",
    "start": "{}",
}
"""How the values of fields read that contrasts keep apart."""


class Joined(NamedTuple):
    """The verdict of a contrast over its settings; scopes: the values of `apart` for which it holds, where that is not all."""

    verdict: Verdict
    scopes: tuple[str, ...] = ()
    outvoted: bool = False


def settled(contrast: Contrast, verdict: Verdict) -> bool:
    """Whether one example ("any") or one counterexample ("all") is enough, whatever else was measured or was not."""
    return (contrast.across, verdict) in ENOUGH


def host_noise(contrast: Contrast, setting: Setting, by_median: float, half: float) -> bool:
    """Whether wall clock and median step differ by more than the narrower interval, and by more than the nearer is from the bound.

    Then what the clocks disagree about is as large as what the verdict rests on: steps of a waiting host, and not of the GPUs.

    Args:
        half: half the width of the interval by median steps, of the logarithm.
    """
    wall, median = math.log(setting.estimate), math.log(by_median)
    own = math.log(setting.high / setting.estimate) if setting.high else math.inf
    gap = abs(wall - median)
    bounds = [math.log(contrast.bound)] + ([-math.log(contrast.bound)] if contrast.direction in ("within", "outside") else [])
    nearest = min(abs(clock - bound) for clock in (wall, median) for bound in bounds)
    return gap > max(TOLERATED, min(own, half)) and gap > nearest


def after_many_looks(settings: Sequence[tuple[Contrast, Setting]]) -> list[Setting]:
    """The settings of one claim with their verdicts: Holm within those of one model, and again over the models.

    What is noisy is inconclusive, and what cannot reach its bound is out of reach, whatever its interval says.
    """
    able = [index for index, (_, setting) in enumerate(settings) if setting.holding is not None]
    families = [(settings[index][1].fields.get("model"),) for index in able]
    holding = holm_of_families([settings[index][1].holding or 0.0 for index in able], families)
    failing = holm_of_families([settings[index][1].failing or 0.0 for index in able], families)
    verdicts: dict[int, Verdict] = {}
    for place, index in enumerate(able):
        verdicts[index] = "holds" if holding[place] <= LEVEL else "does not hold" if failing[place] <= LEVEL else "inconclusive"
    found = []
    for index, (contrast, setting) in enumerate(settings):
        verdict = verdicts.get(index, setting.verdict)
        if setting.noisy:
            verdict = "inconclusive"
        if setting.ceiling is not None and setting.ceiling < contrast.bound:
            verdict = "out of reach"
        found.append(setting.model_copy(update={"verdict": verdict}))
    return found


def join(contrast: Contrast, settings: Sequence[Setting], models_at_least: bool = True) -> Joined:
    """The verdict of a contrast: over the scopes that it keeps apart, or over all its settings at once."""
    if not contrast.apart:
        return _over(contrast, settings)
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        own = setting.model_dump(include={"devices"}) | setting.fields
        groups.setdefault(", ".join(SCOPES[name].format(own.get(name) or "usual") for name in contrast.apart), []).append(setting)
    found = {name: _over(contrast, own).verdict for name, own in groups.items()}
    decided = {name: verdict for name, verdict in found.items() if verdict in DECIDED}
    holding = tuple(sorted(name for name, verdict in decided.items() if verdict != "does not hold"))
    if not decided:
        return _over(contrast, settings)
    if not holding:
        return Joined("does not hold" if len(decided) == len(found) or settled(contrast, "does not hold") else "inconclusive")
    return Joined("holds") if len(holding) == len(found) else Joined("holds here only", holding)


def _over(contrast: Contrast, settings: Sequence[Setting]) -> Joined:
    able = [setting for setting in settings if setting.enough]
    within_reach = [setting for setting in able if setting.verdict != "out of reach"]
    if not within_reach:
        return Joined("out of reach" if able else "inconclusive")
    verdicts = [setting.verdict for setting in within_reach]
    holds, fails, count = verdicts.count("holds"), verdicts.count("does not hold"), len(within_reach)
    verdict: Verdict
    if contrast.across == "any":
        verdict = "holds" if holds else "does not hold" if fails == count else "inconclusive"
    elif contrast.across == "all" and fails:
        verdict = "does not hold"
    elif contrast.across == "most":
        verdict = "holds" if 2 * holds > count else "does not hold" if 2 * fails > count else "inconclusive"
    else:
        verdict = "holds" if 2 * holds > count and not fails else "does not hold" if 2 * fails > count and not holds else "inconclusive"
    if verdict not in DECIDED or settled(contrast, verdict):
        return Joined(verdict)
    models = {part for setting in within_reach for part in str(setting.fields.get("model")).split(" / ")}
    if len(models) < contrast.models_at_least:
        return Joined("inconclusive")
    return Joined("inconclusive", outvoted=True) if outvoted(contrast, settings, verdict) else Joined(verdict)


def outvoted(contrast: Contrast, settings: Sequence[Setting], verdict: Verdict) -> bool:
    """Whether a verdict rests on less than half of the settings, while most of the others, too seldom measured, point elsewhere."""
    few = [setting for setting in settings if not setting.enough]
    deciding = sum(setting.enough and setting.verdict == verdict for setting in settings)
    against = sum(judge(contrast, setting.estimate, setting.estimate) != verdict for setting in few)
    return 2 * deciding < len(settings) and 2 * against > len(few)


def all_of(verdicts: Sequence[tuple[Verdict, bool]]) -> Verdict:
    """The verdict of what must hold together: one that does not refutes all, unless it only says how large the effect is (True)."""
    must = [verdict for verdict, size in verdicts if not size] or [verdict for verdict, _ in verdicts]
    undecided: tuple[Verdict, ...] = ("does not hold", "out of reach", "not yet measured", "inconclusive", "holds here only")
    overall: Verdict = next((verdict for verdict in undecided if verdict in must), "holds")
    sizes = {verdict for verdict, size in verdicts if size}
    if overall == "holds" and sizes & {"does not hold", "out of reach", "holds here only"}:
        return "holds here only"
    return "inconclusive" if overall == "holds" and sizes & {"inconclusive", "not yet measured"} else overall


def blocked_by(answers: Mapping[str, Answer]) -> list[str]:
    """The undecided frameworks that have more settings with enough repeats than those that decide, or as many that point elsewhere."""
    decided = [answer for answer in answers.values() if answer.verdict in DECIDED]
    count, fails = sum(answer.decidable for answer in decided), {answer.verdict == "does not hold" for answer in decided}
    undecided = {name: answer for name, answer in answers.items() if answer.verdict == "inconclusive"}
    return [
        name
        for name, answer in undecided.items()
        if answer.decidable > count or (answer.decidable == count and {answer.leaning == "does not hold"} != fails)
    ]


def leaning(contrasts: Sequence[tuple[Contrast, Sequence[Setting]]]) -> Verdict:
    """What must hold together by the estimates alone: it does not where most settings of a contrast say so."""
    for contrast, settings in contrasts:
        against = sum(judge(contrast, setting.estimate, setting.estimate) == "does not hold" for setting in settings)
        if settings and 2 * against > len(settings) and not contrast.size:
            return "does not hold"
    return "holds"
