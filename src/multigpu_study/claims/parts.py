"""One contrast over its settings: the rules that turn intervals into a verdict (looks, ceilings,
scopes, a majority), and what is said.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from multigpu.analysis.words import joined, plural
from multigpu_study.claims.core import DECIDED, Contrast, Predicate, Verdict
from multigpu_study.claims.figures import figure, seldom
from multigpu_study.claims.joining import ENOUGH, join, leans, support
from multigpu_study.claims.results import Setting, models_of
from multigpu_study.claims.rows import unmet
from multigpu_study.claims.wording import counted, number, of_models, stated

UNMATCHED_SIDES = (
    "no Records of both sides in one setting (same machine, versions and Run but for what is"
    " compared)"
)


@dataclass
class ContrastResult:
    """A contrast in one framework: the records of its scope, its settings among them, its verdict
    and what is said of it.
    able and few: its settings that have enough data, and the others; shown: the able ones, or all
        where there is none; lacking: the Runs without Records; gap: device counts that are not
        decided; here: where it holds, if here only; against: whether most able ones say by their
        estimates alone that it does not hold, and so that nothing that needs it does.
    """

    predicate: Predicate
    framework: str
    contrast: Contrast
    records: pd.DataFrame
    settings: list[Setting]

    def rule(self, settings: list[Setting]) -> None:
        """Take settings as they were judged among all of the claim's, and what follows."""
        self.settings = settings
        self.lacking = [] if settings else unmet(self.contrast, self.records)
        self.able, self.few = (
            [setting for setting in settings if setting.enough is enough]
            for enough in (True, False)
        )
        self.shown = self.able or self.few
        failing = sum(leans(self.contrast, setting) == "does not hold" for setting in self.able)
        self.against = not self.contrast.size and 2 * failing > len(self.able)
        self.verdict, self.scopes, self.outvoted = join(self.contrast, settings)
        self.gap = (
            ""
            if (self.contrast.across, self.verdict) in ENOUGH or self.verdict not in DECIDED
            else self._unmeasured()
        )
        self.here = ""
        if self.gap and self.verdict != "does not hold":
            self.verdict = "holds here only"
            self.here = f"on {counted(self.predicate, {setting.devices for setting in self.able})}"
        if self.contrast.size and self.verdict == "does not hold":
            self.here = f"without the document's size ({stated(self.contrast)} is not so)"

    @property
    def text(self) -> str:
        """The figure: settings of the same verdict first, then those of most devices."""
        ordered = sorted(
            self.shown,
            key=lambda setting: (
                setting.verdict != self.verdict,
                -setting.devices,
                str(setting.fields),
            ),
        )
        pinned = self.predicate.where + self.contrast.where
        one_model = (
            any(field == "model" and len(values) == 1 for field, values in pinned)
            or "model" in self.contrast.varied
        )
        if ordered:
            return figure(
                ordered,
                self.contrast,
                self.few if self.able else [],
                () if one_model else ("model",),
            )
        return ""

    def notes(self, overall: Verdict, several: bool) -> list[str]:
        """List remarks where the test says `overall`; several: name it if it is not so."""
        reason = self._reason()
        plain = f"not so: {stated(self.contrast)}" if overall == "does not hold" and several else ""
        if self.contrast.size and self.verdict == "does not hold":
            plain = f"of another size: not {stated(self.contrast)}"
        said = "; ".join(
            filter(None, [reason, self._rests_on(), self._noise(), self._perfect_scaling()])
        )
        if plain and not reason:
            return [plain, said, self.gap]
        return [f"{self.contrast.label}: {said}" if said else "", self.gap]

    def _unmeasured(self) -> str:
        """The device counts that the contrast names and its settings do not decide, in words."""
        if not isinstance(self.contrast.counts, tuple) or all(
            term.devices for term in self.contrast.terms
        ):
            return ""
        measured, able = (
            {setting.devices for setting in settings} for settings in (self.settings, self.able)
        )
        open_ones = {
            "not measured": {*self.contrast.counts} - measured,
            "measured too seldom to decide": measured - able,
        }
        return ", ".join(
            f"{counted(self.predicate, counts)} {how}"
            for how, counts in open_ones.items()
            if counts
        )

    def _reason(self) -> str:
        """Why its verdict is not a plain yes or no."""
        contrast, able = self.contrast, self.able
        if not self.settings:
            return "" if self.lacking else UNMATCHED_SIDES
        if not able:
            n, launches = max((setting.n, setting.launches) for setting in self.settings)
            least = (
                f"{self.predicate.min_n} repeats over"
                f" {plural(self.predicate.min_launches, 'launch', 'launches')}"
            )
            if n == 1:
                screened = "one repeat is screening"
            else:
                screened = f"at most {n} over {plural(launches, 'launch', 'launches')}"
            return f"{screened}; {least} are needed on each side"
        holds, fails = (
            sum(setting.verdict == verdict for setting in able)
            for verdict in ("holds", "does not hold")
        )
        tally = (
            f"shown in {holds or 'none'} of {plural(len(able), 'setting')}{of_models(able)},"
            f" refuted in {fails or 'none'}"
        )
        tally += f", open in {rest}" if (rest := len(able) - holds - fails) else ""
        alike = len(able) == max(holds, fails)
        if self.outvoted:
            return f"{tally}; most of {len(self.few)} measured too seldom to decide point elsewhere"
        if self.verdict in DECIDED:
            return "" if alike else tally
        models = models_of(setting.fields for setting in able)
        if len(models) < contrast.models_at_least and alike:
            return (
                f"{tally}; measured for {plural(len(models), 'model')} of at least"
                f" {contrast.models_at_least}"
            )
        open_ones = [
            setting for setting in able if setting.verdict in ("inconclusive", "out of reach")
        ]
        if len(able) == 1 and open_ones:
            said = f"the interval straddles {number(contrast.bound, contrast)}"
        else:
            said = tally
        ends = [
            end for setting in open_ones for end in (setting.low, setting.high) if end is not None
        ]
        if contrast.effect is None or not ends:
            return said
        within = min(ends) <= contrast.effect <= max(ends)
        return (
            f"{said}; {'does not exclude' if within else 'excludes'} the document's"
            f" {number(contrast.effect, contrast)}"
        )

    def _rests_on(self) -> str:
        """That a verdict rests on less than half of the settings; how many of those with too few
        repeats point there by their estimates.
        """
        deciding, agreeing, few = support(self.contrast, self.settings, self.verdict)
        if (
            self.verdict not in DECIDED
            or not deciding
            or not few
            or 2 * deciding >= len(self.settings)
        ):
            return ""
        enough = ENOUGH.get((self.contrast.across, self.verdict))
        rests = (
            f"the verdict rests on {deciding} of {len(self.settings)}"
            f" settings{f' ({enough})' if enough else ''}"
        )
        return (
            f"{rests}; {agreeing or 'none'} of {few} {seldom(self.few)}"
            f" {'agrees' if agreeing < 2 else 'agree'} with it"
        )

    def _perfect_scaling(self) -> str:
        """Of settings that cannot reach the bound, the best that they could be and why."""
        ceilings = sorted(
            setting.ceiling
            for setting in self.settings
            if setting.verdict == "out of reach" and setting.ceiling
        )
        if not ceilings:
            return ""
        kept = " to ".join(
            dict.fromkeys(f"{1 / ceiling:.1%}" for ceiling in (ceilings[-1], ceilings[0]))
        )
        best = " to ".join(
            dict.fromkeys(
                number(end, self.contrast, decimals=3) for end in (ceilings[0], ceilings[-1])
            )
        )
        reached = (
            f"perfect scaling would give {best}, and not"
            f" {number(self.contrast.bound, self.contrast)}"
        )
        return (
            f"{_among(ceilings, self.settings)}what it is compared with keeps {kept} of perfect"
            f" scaling, so that {reached}"
        )

    def _noise(self) -> str:
        """That wall clock and median step disagree, with both figures of the first such setting."""
        noisy = [setting for setting in self.able if setting.noisy]
        if not noisy:
            return ""
        wall = number(noisy[0].estimate, self.contrast)
        median = number(noisy[0].by_median or math.nan, self.contrast)
        return (
            f"{_among(noisy, self.able)}host noise: {wall} by the wall clock, {median} by the"
            " median step"
        )


def _among(some: Sequence[object], settings: Sequence[Setting]) -> str:
    return f"in {len(some)} of {len(settings)} settings " if len(settings) > 1 else ""


def scopes_of(parts: Sequence[ContrastResult]) -> list[str]:
    """Where contrasts hold that hold here only; of those of the same scopes, where all do."""
    common: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for part in parts:
        if part.scopes:
            common.setdefault(part.contrast.apart, []).append(part.scopes)
    shared = [
        [name for name in scopes[0] if all(name in other for other in scopes)]
        for scopes in common.values()
    ]
    return [joined(names) for names in shared if names] + list(
        dict.fromkeys(part.here for part in parts if part.here)
    )
