"""Verdicts: what the Records say of a claim.

Every setting of every contrast in every framework is measured first; `rules` then judges all of a claim's settings together, joins those of
a contrast, the contrasts of a test and the frameworks. No Record, no verdict: not yet measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from multigpu.analysis.words import joined, plural
from multigpu.claims.core import Claim, Contrast, Predicate, Selection, Verdict
from multigpu.claims.kinds import KINDS
from multigpu.claims.pairs import Rows, admitted, in_scope, unmet
from multigpu.claims.parts import Part, part_of, scopes_of
from multigpu.claims.results import Answer, Result, Setting
from multigpu.claims.rules import DECIDED, after_many_looks, all_of, blocked_by, leaning
from multigpu.claims.settings import settings_of
from multigpu.claims.wording import framework_title, stated, together, wanted

UNMATCHED_SIDES = "no Records of both sides in one setting (same machine, versions and Run but for what is compared)"
SHARE = re.compile(r"\d+(?:\.\d+)?%")
"""The percentage in a flag: "clocks disagree by 1.0%"."""


class Found(NamedTuple):
    """A contrast with its settings in one framework, and the rows in its scope."""

    contrast: Contrast
    settings: list[Setting]
    scope: Rows


def found(predicate: Predicate, contrast: Contrast, table: Rows) -> Found:
    """The settings of a contrast among these rows, measured and not yet judged."""
    scope = in_scope(contrast, table)
    return Found(contrast, settings_of(predicate, contrast, scope), scope)


def answer(predicate: Predicate, table: Rows, founds: Sequence[Found], several: bool = False) -> Answer:
    """What these rows, of one framework or of those that a predicate joins, say of a predicate.

    founds: its contrasts with their settings, judged. several: whether it must be said which contrast is not so, though there is one only.
    """
    several = several or len(predicate.contrasts) > 1
    parts: list[Part] = []
    lacking: dict[Selection, set[str]] = {}
    for contrast, settings, scope in founds:
        if settings:
            parts.append(part_of(contrast, settings, predicate))
            continue
        missing = unmet(contrast, scope)
        for select, counts in missing.items():
            lacking.setdefault(select, set()).update(counts)
        parts.append(Part(contrast, "not yet measured", reason="" if missing else f"{contrast.label}: {UNMATCHED_SIDES}"))
    overall = all_of([(part.verdict, part.contrast.size) for part in parts])
    if overall == "holds here only" and not scopes_of(parts):
        overall = "inconclusive"  # each contrast holds somewhere, and nowhere do all
    told = [part for part in parts if overall != "does not hold" or part.verdict == overall]
    notes: list[str] = []
    for part in told:
        plain = f"not so: {stated(part.contrast)}" if overall == "does not hold" and several else ""
        if part.contrast.size and part.verdict == "does not hold":
            plain = f"of another size: not {stated(part.contrast)}"
        notes += [*beside(part.contrast, part.reason or plain, part.asides), part.gap]
    if lacking and overall != "does not hold":
        notes.append(wanted(predicate.where, lacking, predicate.counted))
    keys = {key for part in parts for setting in part.shown for key in setting.record_keys}
    notes.append(flagged(table.frame.loc[table.frame["key"].isin(keys), "flags"]))
    texts = [Told(part.verdict, part.contrast.label, part.text, part.of) for part in parts if part.text]
    return Answer(
        verdict=overall,
        figure=figures(texts, overall),
        why="; ".join(dict.fromkeys(filter(None, notes))),
        scope="; ".join(scopes_of(told)) if overall == "holds here only" else "",
        record_keys=tuple(sorted(keys)),
        decidable=sum(setting.enough for part in parts for setting in part.shown),
        leaning=leaning([(part.contrast, [setting for setting in part.shown if setting.enough]) for part in parts]),
    )


def beside(contrast: Contrast, reason: str, aside: Sequence[str]) -> list[str]:
    """A contrast's reason and what stands beside it, the first of them with the contrast's name."""
    return [reason, *aside] if reason or not aside else [f"{contrast.label}: {aside[0]}", *aside[1:]]


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


def flagged(flags: pd.Series) -> str:
    """How many rows are flagged, and for what; of flags that differ in a percentage alone, the largest."""
    own = [str(flag) for flag in flags.dropna() if flag]
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
        frame: the table of the kind of Records that its predicate is over.
        more: the tables of its further predicates, by their kind; what is left out is not yet measured.
    """
    tables = {type(claim.predicate): frame, **(more or {})}
    return evaluate_rows(claim, {kind.predicate: kind.read(tables.get(kind.predicate, pd.DataFrame())) for kind in KINDS.values()})


def evaluate_rows(claim: Claim, tables: Mapping[type, Rows]) -> Result:
    """As `evaluate`, of rows read once for many claims; tables: by kind of predicate."""
    if claim.predicate is None:
        verdict: Verdict = "cannot be tested here" if claim.untestable else "not yet measured"
        why = claim.untestable or f"needs {claim.takes}"
        return Result(claim=claim, verdict=verdict, figure="", why=why, record_keys=[], by_framework={})
    asked = [
        (predicate, " / ".join(group), admitted(tables[type(predicate)], predicate, group))
        for predicate in claim.predicates
        for group in predicate.groups
    ]
    every = [(one, name, own, [found(one, contrast, own) for contrast in one.contrasts]) for one, name, own in asked]
    flat = [(one.contrast, setting) for *_, founds in every for one in founds for setting in one.settings]
    judged = iter(after_many_looks(flat))
    by_predicate: dict[int, dict[str, Answer]] = {}
    for predicate, name, own, founds in every:
        ruled = [one._replace(settings=[next(judged) for _ in one.settings]) for one in founds]
        by_predicate.setdefault(id(predicate), {})[name] = answer(predicate, own, ruled, bool(claim.further))
    settings = tuple(after_many_looks(flat))
    parts = [(combine(answers), answers) for answers in by_predicate.values()]
    overall = all_of([(part[0].verdict, False) for part in parts])
    # of a claim that does not hold, only what refutes it is said
    told = [part for part, _ in parts if overall != "does not hold" or part.verdict == overall]
    names = dict.fromkeys(name for _, answers in parts for name in answers)
    still = [f"decided by {claim.takes}"] if claim.decides and overall in ("inconclusive", "not yet measured") else []
    return Result(
        claim=claim,
        verdict=overall,
        figure="; ".join(part.figure for part, _ in parts if part.figure),
        why="; ".join([*dict.fromkeys(part.why for part in told if part.why), *still]),
        record_keys=sorted({key for part, _ in parts for key in part.record_keys}),
        by_framework={name: _together([answers[name] for _, answers in parts if name in answers]) for name in names},
        settings=settings,
        scope="; ".join(dict.fromkeys(part.scope for part, _ in parts if part.scope)) if overall == "holds here only" else "",
        looks=sum(setting.holding is not None for setting in settings),
    )


def _together(answers: Sequence[Answer]) -> Answer:
    """One framework's answers to all predicates of a claim."""
    return Answer(
        verdict=all_of([(answer.verdict, False) for answer in answers]),
        figure="; ".join(answer.figure for answer in answers if answer.figure),
        why="; ".join(answer.why for answer in answers if answer.why),
        record_keys=tuple(sorted({key for answer in answers for key in answer.record_keys})),
        decidable=sum(answer.decidable for answer in answers),
    )


def combine(answers: Mapping[str, Answer]) -> Answer:
    """One answer of all frameworks: that of the decided ones if they agree, unless an undecided one that could decide more blocks it."""
    told = {name: a.figure for name, a in answers.items() if a.figure}
    texts = [text if len(told) == 1 else f"{framework_title(name)}: {text}" for name, text in told.items()]
    verdict, why, scope = _agreed(answers)
    keys = tuple(sorted({key for a in answers.values() for key in a.record_keys}))
    return Answer(verdict=verdict, figure="; ".join(texts), why=why, scope=scope, record_keys=keys)


def _agreed(answers: Mapping[str, Answer]) -> tuple[Verdict, str, str]:
    decided = {name: a for name, a in answers.items() if a.verdict in DECIDED}
    verdicts = {a.verdict for a in decided.values()}
    if decided and (blocking := blocked_by(answers)):
        deciders = joined([framework_title(name) for name in decided])
        why = "; ".join(answers[name].why for name in blocking)
        return (
            "inconclusive",
            f"{deciders} would decide it, {joined([framework_title(n) for n in blocking])} with as many settings or more does not: {why}",
            "",
        )
    if (verdicts and "does not hold" not in verdicts) or len(verdicts) == 1:
        open_ones = [framework_title(name) for name, a in answers.items() if a.verdict == "inconclusive"]
        deciders = joined([framework_title(name) for name in decided])
        alone = [f"decided by {deciders}, inconclusive in {joined(open_ones)}"] if open_ones else []
        differ = len({a.why for a in decided.values()}) > 1
        apart = [f"{framework_title(name)}: {a.why}" if differ else a.why for name, a in decided.items() if a.why]
        alike = len({a.scope for a in decided.values()}) == 1
        scopes = dict.fromkeys(a.scope if alike else f"{framework_title(name)}: {a.scope}" for name, a in decided.items() if a.scope)
        verdict: Verdict = "holds here only" if "holds here only" in verdicts else verdicts.pop()
        return verdict, "; ".join([*dict.fromkeys(apart), *alone]), "; ".join(scopes)
    if verdicts:
        said = ", ".join(f"{framework_title(name)} {a.verdict}" for name, a in decided.items())
        return "inconclusive", f"frameworks differ: {said}", ""
    for verdict in ("out of reach", "inconclusive", "not yet measured"):
        whys = [f"{framework_title(name)}: {a.why}" if len(answers) > 1 else a.why for name, a in answers.items() if a.verdict == verdict]
        if whys:
            same = {a.why for a in answers.values() if a.verdict == verdict}
            return verdict, same.pop() if len(same) == 1 else "; ".join(whys), ""
    return "not yet measured", "", ""
