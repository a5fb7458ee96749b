"""Verdicts: what the Records say of a claim.

An interval wholly beyond the bound on the claimed side holds; one wholly on the other side does not hold (an effect smaller
than the margin is not the claimed effect); one that straddles the bound is inconclusive, as is anything with too few repeats or
launches. No Record, no verdict: not yet measured. Settings join as the contrast says; contrasts join by "all"; frameworks are
decided one by one and the overall verdict is theirs if those that are decided agree, and inconclusive if they do not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from multigpu.analysis.wording import joined
from multigpu.claims.cautions import ENOUGH, perfect_scaling, rests_on
from multigpu.claims.core import Answer, Claim, Contrast, Predicate, Result, Selection, Setting, Verdict
from multigpu.claims.kinds import READERS
from multigpu.claims.records import Comparison, Row, admitted, comparisons, matches, quantity, rows, unmet
from multigpu.claims.settings import common_repeats, measure
from multigpu.claims.wording import figure, framework_title, number, plural, stated, tallied, together, wanted

UNMATCHED_SIDES = "no Records of both sides in one setting (same machine, versions and Run but for what is compared)"
DECIDED: tuple[Verdict, ...] = ("holds", "does not hold")
SHARE = re.compile(r"\d+(?:\.\d+)?%")
"""The percentage in a flag: "clocks disagree by 1.0%"."""


def highest(settings: Sequence[tuple[Comparison, Setting]]) -> list[tuple[Comparison, Setting]]:
    """Of settings that differ in the device count alone, the one with the most devices that has enough data, or else the most devices."""
    best: dict[object, tuple[Comparison, Setting]] = {}
    for pair in settings:
        key = pair[0].identity
        held = best.get(key)
        if held is None or (pair[1].enough, pair[1].devices) > (held[1].enough, held[1].devices):
            best[key] = pair
    return list(best.values())


def settled(contrast: Contrast, verdict: Verdict) -> bool:
    """Whether one example ("any") or one counterexample ("all") is enough, whatever else was measured or was not."""
    return (contrast.across, verdict) in ENOUGH


def unmeasured(contrast: Contrast, settings: Sequence[Setting], counted: tuple[str, str]) -> str:
    """The device counts that a contrast names and these settings do not decide, in words; counted: what a count is of, one and many."""
    if not isinstance(contrast.counts, tuple) or all(term.devices for term in contrast.terms):
        return ""
    measured, able = ({s.devices for s in settings if s.enough or not least} for least in (False, True))
    none, few = [n for n in contrast.counts if n not in measured], [n for n in contrast.counts if n in measured - able]
    parts = [(none, "not measured"), (few, "measured too seldom to decide")]
    return ", ".join(f"{joined([str(n) for n in counts])} {counted[counts != [1]]} {how}" for counts, how in parts if counts)


def join(contrast: Contrast, settings: Sequence[tuple[Comparison, Setting]], predicate: Predicate) -> tuple[Verdict, str]:
    """The verdict of a contrast over its settings, and why it is not a plain yes or no."""
    able = [(comparison, setting) for comparison, setting in settings if setting.enough]
    if not able:
        n, launches = max((s.n, s.launches) for _, s in settings)
        least = f"{predicate.min_n} repeats over {plural(predicate.min_launches, 'launch', 'launches')} are needed on each side"
        found = "one repeat is screening" if n == 1 else f"at most {n} over {plural(launches, 'launch', 'launches')}"
        return "inconclusive", f"{contrast.label}: {found}; {least}"
    verdicts = [setting.verdict for _, setting in able]
    holds, fails = verdicts.count("holds"), verdicts.count("does not hold")
    tally = f"{contrast.label}: {tallied(holds, fails, [setting for _, setting in able])}"
    if contrast.across == "any":
        verdict: Verdict = "holds" if holds else "does not hold" if fails == len(able) else "inconclusive"
    elif contrast.across == "most":
        verdict = "holds" if 2 * holds > len(able) else "does not hold" if 2 * fails > len(able) else "inconclusive"
    elif contrast.across == "all" and fails:
        verdict = "does not hold"
    else:
        verdict = "holds" if holds == len(able) else "does not hold" if fails == len(able) else "inconclusive"
    models = {model for comparison, _ in able for model in comparison.models}
    if verdict in DECIDED and not settled(contrast, verdict) and len(models) < contrast.models_at_least:
        return "inconclusive", f"{tally}; measured for {plural(len(models), 'model', 'models')} of at least {contrast.models_at_least}"
    if verdict in DECIDED:
        return verdict, "" if len(able) == max(holds, fails) else tally
    if len(able) == 1:
        return verdict, f"{contrast.label}: the interval straddles {number(contrast.bound, contrast)}"
    return verdict, tally


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of what must hold together: one that does not refutes all."""
    undecided: tuple[Verdict, ...] = ("does not hold", "not yet measured", "inconclusive")
    return next((verdict for verdict in undecided if verdict in verdicts), "holds")


def answer(predicate: Predicate, table: Sequence[Row], several: bool = False) -> tuple[Answer, list[Setting]]:
    """What these rows, of one framework or of those that a predicate joins, say of a predicate.

    several: whether it must be said which contrast is not so, though there is one only.
    """
    several = several or len(predicate.contrasts) > 1
    verdicts: list[Verdict] = []
    reasons: list[str] = []
    gaps: list[str] = []
    asides: list[list[str]] = []
    texts: list[Told] = []
    everything: list[Setting] = []
    keys: set[str] = set()
    lacking: dict[Selection, set[str]] = {}
    for contrast in predicate.contrasts:
        scope = [row for row in table if matches(row, contrast.where) and (row.get("timed_steps") or 0) >= contrast.steps_at_least]
        usable = [row for row in scope if quantity(row, contrast.quantity)]
        found = [one for one in comparisons(contrast, usable) if not contrast.paired or common_repeats(one)]
        pairs = [(comparison, measure(contrast, comparison, predicate)) for comparison in found]
        if contrast.counts == "highest":
            pairs = highest(pairs)
        pairs.sort(key=lambda pair: (pair[1].devices, str(pair[1].fields)))
        settings = [setting for _, setting in pairs]
        shown = [setting for setting in settings if setting.enough] or settings
        if pairs:
            verdict, reason = join(contrast, pairs, predicate)
        else:
            missing = unmet(contrast, scope)
            for select, counts in missing.items():
                lacking.setdefault(select, set()).update(counts)
            verdict, reason = "not yet measured", "" if missing else f"{contrast.label}: {UNMATCHED_SIDES}"
        verdicts.append(verdict)
        reasons.append(reason)
        open_counts = verdict in DECIDED and not settled(contrast, verdict)
        gaps.append(unmeasured(contrast, settings, predicate.counted) if open_counts else "")
        asides.append(cautions(contrast, pairs, predicate, verdict))
        if settings:
            further = [setting for setting in settings if not setting.enough] if shown[0].enough else []
            text = figure(deciding_first(shown, verdict), contrast, further, named(predicate, contrast))
            texts.append(Told(verdict, contrast.label, text, frozenset((one.estimate, one.record_keys) for one in shown)))
        keys |= {key for setting in shown for key in setting.record_keys}
        everything += settings
    overall = all_of(verdicts)
    notes: list[str] = []
    for contrast, verdict, reason, aside, gap in zip(predicate.contrasts, verdicts, reasons, asides, gaps, strict=True):
        if overall != "does not hold":
            notes += [*beside(contrast, reason, aside if overall in DECIDED else []), gap]
        elif verdict == overall:
            notes += [*beside(contrast, reason or (f"not so: {stated(contrast)}" if several else ""), aside), gap]
    if lacking and overall != "does not hold":
        notes.append(wanted(predicate.where, lacking, predicate.counted))
    notes.append(flagged([row for row in table if row["key"] in keys]))
    why = "; ".join(dict.fromkeys(filter(None, notes)))
    return Answer(verdict=overall, figure=figures(texts, overall), why=why, record_keys=tuple(sorted(keys))), everything


def cautions(contrast: Contrast, pairs: Sequence[tuple[Comparison, Setting]], predicate: Predicate, verdict: Verdict) -> list[str]:
    """What must be known beside the verdict of a contrast: that few settings decided it, that its bound was out of reach."""
    found = [rests_on(contrast, [setting for _, setting in pairs], verdict)] if verdict in DECIDED else []
    if verdict == "does not hold":
        found.append(perfect_scaling(contrast, [pair for pair in pairs if pair[1].enough], predicate))
    return [text for text in found if text]


def beside(contrast: Contrast, reason: str, aside: Sequence[str]) -> list[str]:
    """A contrast's reason and what stands beside it, the first of them with the contrast's name."""
    return [reason, *aside] if reason or not aside else [f"{contrast.label}: {aside[0]}", *aside[1:]]


def deciding_first(settings: Sequence[Setting], verdict: Verdict) -> list[Setting]:
    """Settings as a reader wants them: those that say what the verdict says before others, and the most devices first."""
    return sorted(settings, key=lambda setting: (setting.verdict != verdict, -setting.devices, str(setting.fields)))


def named(predicate: Predicate, contrast: Contrast) -> tuple[str, ...]:
    """What is said of every setting: the model, unless the predicate has one only or its sides are of two."""
    one = any(field == "model" and len(values) == 1 for field, values in predicate.where + contrast.where)
    return () if one or "model" in contrast.varied else ("model",)


class Told(NamedTuple):
    """A contrast's figure in words; of: the estimates it gives, each with its Records."""

    verdict: Verdict
    label: str
    text: str
    of: frozenset[tuple[float, tuple[str, ...]]]


def figures(texts: Sequence[Told], overall: Verdict) -> str:
    """The figures of all contrasts: those behind the verdict first, and one that several contrasts share once."""
    shared: dict[object, list[Told]] = {}
    for told in sorted(texts, key=lambda told: told.verdict != overall):
        shared.setdefault(told.of, []).append(told)
    return "; ".join(f"{together(list(dict.fromkeys(told.label for told in same)))}: {same[0].text}" for same in shared.values())


def flagged(table: Sequence[Row]) -> str:
    """How many of the rows are flagged, and for what; of flags that differ in a percentage alone, the largest."""
    own = [str(row["flags"]) for row in table if row.get("flags")]
    shares: dict[str, list[str]] = {}
    for flag in own:
        found = SHARE.search(flag)
        shares.setdefault(SHARE.sub("{}", flag, count=1), []).append(found[0] if found else "")
    words = [
        kind.replace("{}", ("up to " if len(set(found)) > 1 else "") + max(found, key=lambda share: float(share.rstrip("%") or 0)))
        for kind, found in shares.items()
    ]
    return f"{plural(len(own), 'Record is', 'Records are')} flagged ({', '.join(words)})" if own else ""


def evaluate(claim: Claim, frame: pd.DataFrame, more: Mapping[type, pd.DataFrame] | None = None) -> Result:
    """What Records say of `claim`.

    Args:
        frame: the tidy table of Runs, or of the other kind of Records where its predicate is over these.
        more: the tables of its further predicates, by their kind; what is left out is not yet measured.
    """
    read = {kind: READERS.get(kind, rows)(table) for kind, table in (more or {}).items()}
    return evaluate_rows(claim, READERS.get(type(claim.predicate), rows)(frame), read)


def evaluate_rows(claim: Claim, table: Sequence[Row], more: Mapping[type, Sequence[Row]] | None = None) -> Result:
    """As `evaluate`, of rows read once for many claims."""
    if claim.predicate is None:
        verdict: Verdict = "cannot be tested here" if claim.untestable else "not yet measured"
        why = claim.untestable or f"needs {claim.needs}"
        return Result(claim=claim, verdict=verdict, figure="", why=why, record_keys=[], by_framework={})
    tables = [table, *((more or {}).get(type(predicate), ()) for predicate in claim.further)]
    several = bool(claim.further)
    parts = [_part(claim, predicate, own, several) for predicate, own in zip(claim.predicates, tables, strict=True)]
    overall = all_of([part.verdict for part in parts])
    # of a claim that does not hold, only what refutes it is said
    told = [part for part in parts if overall != "does not hold" or part.verdict == overall]
    names = dict.fromkeys(name for part in parts for name in part.by_framework)
    return Result(
        claim=claim,
        verdict=overall,
        figure="; ".join(part.figure for part in parts if part.figure),
        why="; ".join(dict.fromkeys(part.why for part in told if part.why)),
        record_keys=sorted({key for part in parts for key in part.record_keys}),
        by_framework={name: _together([part.by_framework[name] for part in parts if name in part.by_framework]) for name in names},
        settings=tuple(setting for part in parts for setting in part.settings),
    )


def _together(answers: Sequence[Answer]) -> Answer:
    """One framework's answers to all predicates of a claim."""
    return Answer(
        verdict=all_of([answer.verdict for answer in answers]),
        figure="; ".join(answer.figure for answer in answers if answer.figure),
        why="; ".join(answer.why for answer in answers if answer.why),
        record_keys=tuple(sorted({key for answer in answers for key in answer.record_keys})),
    )


def _part(claim: Claim, predicate: Predicate, table: Sequence[Row], several: bool) -> Result:
    """What the rows of one kind of Records say of one of a claim's predicates."""
    scope = [row for row in table if admitted(row, predicate)]
    groups = [predicate.frameworks] if predicate.joins_frameworks else [(name,) for name in predicate.frameworks]
    answers: dict[str, Answer] = {}
    settings: list[Setting] = []
    for group in groups:
        name = " / ".join(group)
        answers[name], found = answer(predicate, [row for row in scope if row["framework"] in group], several)
        settings += found
    overall, why = combine(answers)
    told = {name: a.figure for name, a in answers.items() if a.figure}
    texts = [text if len(told) == 1 else f"{framework_title(name)}: {text}" for name, text in told.items()]
    keys = sorted({key for a in answers.values() for key in a.record_keys})
    return Result(
        claim=claim,
        verdict=overall,
        figure="; ".join(texts),
        why=why,
        record_keys=keys,
        by_framework=answers,
        settings=tuple(settings),
    )


def combine(answers: dict[str, Answer]) -> tuple[Verdict, str]:
    """One verdict of all frameworks: that of the decided ones if they agree; undecided ones do not stand in the way, but are said."""
    decided = {name: a for name, a in answers.items() if a.verdict in DECIDED}
    verdicts = {a.verdict for a in decided.values()}
    if len(verdicts) == 1:
        open_ones = [framework_title(name) for name, a in answers.items() if a.verdict == "inconclusive"]
        deciders = joined([framework_title(name) for name in decided])
        alone = [f"decided by {deciders}, inconclusive in {joined(open_ones)}"] if open_ones else []
        differ = len({a.why for a in decided.values()}) > 1
        apart = [f"{framework_title(name)}: {a.why}" if differ else a.why for name, a in decided.items() if a.why]
        return verdicts.pop(), "; ".join([*dict.fromkeys(apart), *alone])
    if verdicts:
        return "inconclusive", "frameworks differ: " + ", ".join(f"{framework_title(name)} {a.verdict}" for name, a in decided.items())
    for verdict in ("inconclusive", "not yet measured"):
        whys = [f"{framework_title(name)}: {a.why}" if len(answers) > 1 else a.why for name, a in answers.items() if a.verdict == verdict]
        if whys:
            same = {a.why for a in answers.values() if a.verdict == verdict}
            return verdict, same.pop() if len(same) == 1 else "; ".join(whys)
    return "not yet measured", ""
