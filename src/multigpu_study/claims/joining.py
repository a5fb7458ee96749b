"""Join the verdicts of several settings into one."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from multigpu_study.claims.core import LEVEL, Contrast, Verdict
from multigpu_study.claims.results import Setting, models_of
from multigpu_study.claims.wording import SAYINGS

ENOUGH = {
    ("any", "holds"): "one example is enough",
    ("all", "does not hold"): "counterexamples are enough",
}
"""By how settings join, the verdict that some of them settle, whatever else was measured or was
not; in words. One counterexample is enough only where no other setting is open, or most of those
measured too seldom point there as well.
"""


class Joined(NamedTuple):
    """A contrast's verdict over its settings; scopes: values of `apart` for which it holds."""

    verdict: Verdict
    scopes: tuple[str, ...] = ()
    outvoted: bool = False


def leans(contrast: Contrast, setting: Setting) -> Verdict:
    """The verdict of an estimate alone, which decides nothing."""
    value, bound = setting.estimate, contrast.bound
    inside = 1 / bound <= value <= bound
    holds = {
        "above": value >= bound,
        "below": value <= bound,
        "within": inside,
        "outside": not inside,
    }
    return "holds" if holds[contrast.direction] else "does not hold"


def after_many_looks(settings: Sequence[tuple[Contrast, Setting]]) -> list[Setting]:
    """Judge a claim's settings: Holm within those of one model, and again over the models."""
    looked = [setting for _, setting in settings if setting.holding is not None]
    models = [setting.fields.get("model") for setting in looked]
    holding, failing = (
        iter(holm_of_families([getattr(one, name) for one in looked], models))
        for name in ("holding", "failing")
    )

    def ruled(contrast: Contrast, setting: Setting) -> Verdict:
        held, failed = (
            setting.holding is not None and next(chances) <= LEVEL for chances in (holding, failing)
        )
        if setting.ceiling is not None and setting.ceiling < contrast.bound:
            return "out of reach"
        if setting.noisy:
            return "inconclusive"
        if held:
            return "holds"
        if failed:
            return "does not hold"
        return "inconclusive"

    return [
        setting.model_copy(update={"verdict": ruled(contrast, setting)})
        for contrast, setting in settings
    ]


def join(contrast: Contrast, settings: Sequence[Setting]) -> Joined:
    """Join a contrast's settings to a verdict, within the scopes that it keeps apart if any."""
    if not settings:
        return Joined("not yet measured")
    if not contrast.apart:
        return _over(contrast, settings)
    scopes: dict[str, list[Setting]] = {}
    for setting in settings:
        fields = setting.fields | {"devices": setting.devices}
        name = ", ".join(
            SAYINGS["scopes"][name].format(fields.get(name) or "usual") for name in contrast.apart
        )
        scopes.setdefault(name, []).append(setting)
    found = {name: _over(contrast, own).verdict for name, own in sorted(scopes.items())}
    holding, failing = (
        tuple(name for name in found if found[name] == verdict)
        for verdict in ("holds", "does not hold")
    )
    if holding:
        return Joined("holds") if len(holding) == len(found) else Joined("holds here only", holding)
    if failing:
        against = contrast.across == "all" and (
            len(failing) > 1 or "inconclusive" not in found.values()
        )
        return Joined("does not hold" if len(failing) == len(found) or against else "inconclusive")
    return _over(contrast, settings)


def _over(contrast: Contrast, settings: Sequence[Setting]) -> Joined:
    able = [setting for setting in settings if setting.enough]
    within_reach = [setting for setting in able if setting.verdict != "out of reach"]
    if not within_reach:  # what was measured too seldom may reach further
        return Joined("out of reach" if able and len(able) == len(settings) else "inconclusive")
    verdicts = [setting.verdict for setting in within_reach]
    holds = verdicts.count("holds")
    fails = verdicts.count("does not hold")
    count = len(within_reach)
    most_hold, most_fail = 2 * holds > count, 2 * fails > count
    _, agree, seldom = support(contrast, settings, "does not hold")
    alone = fails == 1 and holds + fails < count and 2 * agree <= seldom
    held, failed = {
        "any": (holds > 0, fails == count),
        "all": (most_hold and not fails, fails > 0 and not alone),
        "most": (most_hold, most_fail),
        "same": (most_hold and not fails, most_fail and not holds),
    }[contrast.across]
    verdict: Verdict = "holds" if held else "does not hold" if failed else "inconclusive"
    if verdict == "inconclusive" or (contrast.across, verdict) in ENOUGH:
        return Joined(verdict)
    if len(models_of(setting.fields for setting in within_reach)) < contrast.models_at_least:
        return Joined("inconclusive")
    deciding, agreeing, few = support(contrast, settings, verdict)
    outvoted = 2 * deciding < len(settings) and 2 * agreeing < few
    return Joined("inconclusive", outvoted=True) if outvoted else Joined(verdict)


def support(
    contrast: Contrast, settings: Sequence[Setting], verdict: Verdict
) -> tuple[int, int, int]:
    """How many settings decide a verdict; how many too seldom measured lean to it, and of how
    many.
    """
    leaning = [leans(contrast, setting) == verdict for setting in settings if not setting.enough]
    return (
        sum(setting.enough and setting.verdict == verdict for setting in settings),
        sum(leaning),
        len(leaning),
    )


def holm(chances: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: at or below alpha, any one of them is wrong with chance alpha."""
    ordered = pd.Series(chances, dtype="float64").sort_values(kind="stable")
    return list((ordered * np.arange(len(ordered), 0, -1)).clip(upper=1.0).cummax().sort_index())


def holm_of_families(chances: Sequence[float], families: Sequence[Hashable]) -> list[float]:
    """Adjusted p-values by Holm within each family, and again over families by the least."""
    family = pd.Series([repr(one) for one in families], dtype=object)
    within = (
        pd.Series(chances, dtype=float).groupby(family).transform(lambda own: holm(own.tolist()))
    )
    first = within.groupby(family).min().sort_values(kind="stable")
    times = pd.Series(np.arange(len(first), 0, -1), index=first.index)
    least = pd.Series(holm(first.tolist()), index=first.index)
    return np.maximum((within * family.map(times)).clip(upper=1.0), family.map(least)).tolist()
