"""Verdicts: what the Records say of a claim. Every setting of every contrast in every framework is
measured first; then all of a claim's are judged together, and joined to contrasts (`parts`), these
to tests, and these over frameworks. No Record, no verdict: not yet measured.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd

from multigpu.analysis.collectives import collectives_frame
from multigpu.analysis.frame import frame_of
from multigpu.analysis.read import records_of
from multigpu.analysis.step_traces import trace_table
from multigpu.analysis.traces import with_untraced_steps
from multigpu.analysis.words import joined, plural
from multigpu_study.analysis.synchrony import synchrony_frame
from multigpu_study.analysis.training import training_frame
from multigpu_study.claims.core import DECIDED, OPEN, Claim, Verdict
from multigpu_study.claims.joining import after_many_looks
from multigpu_study.claims.parts import ContrastResult, scopes_of
from multigpu_study.claims.reading import all_claims
from multigpu_study.claims.results import Answer, ClaimResult, Setting
from multigpu_study.claims.rows import NONE, admitted, rows
from multigpu_study.claims.statistics import repeats_needed, settings_of
from multigpu_study.claims.wording import framework_title, together, wanted
from multigpu_study.training.record import TrainingStore

SHARE = r"(\d+(?:\.\d+)?)%"
"""The percentage in a flag: "clocks disagree by 1.0%"."""


def results_of(runs: Path, hosts: Path, synchrony: Path, training: Path) -> list[ClaimResult]:
    """Return the result of every claim by the Records of these folders."""
    records = with_untraced_steps(records_of(runs))
    frames = {
        "runs": frame_of(records),
        "hosts": collectives_frame(hosts),
        "synchrony": synchrony_frame(synchrony),
    }
    return evaluate_all(
        **frames, training=training_frame(TrainingStore(training)), traces=trace_table(records)
    )


def evaluate_all(
    claims: Iterable[Claim] | None = None, /, **frames: pd.DataFrame
) -> list[ClaimResult]:
    """Evaluate these claims, or all; frames: the table of each kind of tests that was measured."""
    tables = {kind: rows(table, kind) for kind, table in frames.items()}
    return [_evaluated(claim, tables) for claim in (all_claims() if claims is None else claims)]


def _evaluated(claim: Claim, tables: Mapping[str, pd.DataFrame]) -> ClaimResult:
    if claim.predicate is None:
        verdict: Verdict = "cannot be tested here" if claim.untestable else "not yet measured"
        return ClaimResult(
            claim=claim, verdict=verdict, why=claim.untestable or f"needs {claim.takes}"
        )
    parts = [
        ContrastResult(
            predicate,
            " / ".join(group),
            contrast,
            records,
            settings_of(predicate, contrast, records),
        )
        for predicate in claim.predicates
        for group in predicate.groups
        for contrast in predicate.contrasts
        for records in [admitted(tables.get(predicate.of, NONE), predicate, contrast, group)]
    ]
    judged = after_many_looks(
        [(part.contrast, setting) for part in parts for setting in part.settings]
    )
    left = iter(judged)
    for part in parts:
        part.rule([next(left) for _ in part.settings])
    several = bool(claim.further)
    answers = {
        key: answer(list(alike), several)
        for key, alike in groupby(parts, key=lambda part: (part.predicate.of, part.framework))
    }
    kinds, names = (dict.fromkeys(key[place] for key in answers) for place in (0, 1))
    overall = _together(
        [
            combine({name: answer for (of, name), answer in answers.items() if of == kind})
            for kind in kinds
        ]
    )
    if overall.verdict == "does not hold" and claim.refuted_on:
        here: Verdict = "does not hold here"
        overall = overall.model_copy(update={"verdict": here, "scope": claim.refuted_on})
    still = f"decided by {claim.takes}" if claim.decides and overall.verdict in OPEN else ""
    dates = (
        pd.concat([part.records[["key", "measured_at"]] for part in parts])
        .drop_duplicates("key")
        .set_index("key")["measured_at"]
    )
    result = ClaimResult(
        **dict(overall) | {"why": _joined([overall.why, still])},
        claim=claim,
        by_framework={
            name: _together(
                [answer for (_, framework), answer in answers.items() if framework == name]
            )
            for name in names
        },
        settings=tuple(judged),
        measured_at=tuple(dates.reindex([*overall.record_keys]).dropna()),
        looks=sum(setting.holding is not None for setting in judged),
    )
    return result.model_copy(update={"needed": needed(result)})


def needed(result: ClaimResult) -> str:
    """Say the least that open settings of an inconclusive claim would take; "" of any other."""
    told = []
    tests = result.claim.predicates if result.verdict == "inconclusive" else ()
    for predicate, contrast in ((test, contrast) for test in tests for contrast in test.contrasts):
        open_settings = [
            setting
            for setting in result.settings
            if setting.contrast == contrast.label and setting.verdict == "inconclusive"
        ]
        if counts := [
            count
            for setting in open_settings
            if (count := repeats_needed(contrast, setting, max(result.looks, 1)))
        ]:
            least = plural(max(predicate.min_n, min(counts)), "repeat")
            told.append(
                f"{contrast.label}: {least} a side in the nearest of"
                f" {plural(len(open_settings), 'open setting')}"
            )
    return "; ".join(told)


def answer(parts: Sequence[ContrastResult], several: bool) -> Answer:
    """Judge a predicate's parts by Records of one framework, or of joined ones; several: the
    contrast that is not so must be named.
    """
    overall = all_of([(part.verdict, part.contrast.size) for part in parts])
    if overall == "holds here only" and not scopes_of(parts):
        overall = "inconclusive"  # each contrast holds somewhere, and nowhere do all
    told = [part for part in parts if overall != "does not hold" or part.verdict == overall]
    notes = [note for part in told for note in part.notes(overall, several or len(parts) > 1)]
    lacking = [missing for part in parts for missing in part.lacking]
    if lacking and overall != "does not hold":
        notes.append(wanted(parts[0].predicate, lacking))
    keys = _keys(setting for part in parts for setting in part.shown)
    records = pd.concat([part.records[["key", "flags"]] for part in parts]).drop_duplicates("key")
    notes.append(flagged(records.loc[records["key"].isin(keys), "flags"]))
    leaning: Verdict = "does not hold" if any(part.against for part in parts) else "holds"
    figure, scopes = figures(parts, overall), scopes_of(told)
    able = sum(len(part.able) for part in parts)
    return _answer(overall, figure, notes, scopes, keys, decidable=able, leaning=leaning)


def figures(parts: Sequence[ContrastResult], overall: Verdict) -> str:
    """Write all contrasts' figures, those behind the verdict first, a shared one once."""
    shared: dict[object, list[ContrastResult]] = {}
    for part in sorted(
        (part for part in parts if part.shown), key=lambda part: part.verdict != overall
    ):
        shared.setdefault(
            frozenset((setting.estimate, setting.record_keys) for setting in part.shown), []
        ).append(part)
    return "; ".join(
        f"{together(list(dict.fromkeys(part.contrast.label for part in same)))}: {same[0].text}"
        for same in shared.values()
    )


def flagged(flags: pd.Series) -> str:
    """Count flagged rows, by flag; of flags that differ in a percentage alone, tell the largest."""
    texts = flags[flags.ne("")].astype(str)
    shares, words = texts.str.extract(SHARE, expand=False), []
    for kind, of_kind in shares.groupby(
        texts.str.replace(SHARE, "{}", n=1, regex=True), sort=False
    ):
        largest = f"{max(of_kind, key=float)}%"
        words.append(
            str(kind).replace("{}", f"up to {largest}" if of_kind.nunique() > 1 else largest)
        )
    if words:
        return f"{plural(len(texts), 'Record is', 'Records are')} flagged ({', '.join(words)})"
    return ""


def _joined(texts: Iterable[str]) -> str:
    """Each text once."""
    return "; ".join(filter(None, dict.fromkeys(texts)))


def _answer(
    verdict: Verdict,
    figure: str,
    why: Iterable[str],
    scopes: Iterable[str],
    keys: tuple[str, ...],
    **more: Any,
) -> Answer:
    scope = _joined(scopes) if verdict == "holds here only" else ""
    return Answer(
        verdict=verdict, figure=figure, why=_joined(why), scope=scope, record_keys=keys, **more
    )


def _keys(judged: Iterable[Answer | Setting]) -> tuple[str, ...]:
    return tuple(sorted({key for each in judged for key in each.record_keys}))


def _together(answers: Sequence[Answer]) -> Answer:
    """Join tests that must all hold; of a claim that does not, only what refutes it is said."""
    overall = all_of([(answer.verdict, False) for answer in answers])
    told = [answer for answer in answers if overall != "does not hold" or answer.verdict == overall]
    figure = _joined(answer.figure for answer in answers)
    decidable = sum(answer.decidable for answer in answers)
    reasons = (answer.why for answer in told)
    scopes = (answer.scope for answer in answers)
    return _answer(overall, figure, reasons, scopes, _keys(answers), decidable=decidable)


def all_of(verdicts: Sequence[tuple[Verdict, bool]]) -> Verdict:
    """The verdict of what must hold together: one that does not refutes all, unless it only says
    how large the effect is (True).
    """
    must = [verdict for verdict, size in verdicts if not size] or [
        verdict for verdict, _ in verdicts
    ]
    worst_first = (
        "does not hold",
        "out of reach",
        "not yet measured",
        "inconclusive",
        "holds here only",
        "holds",
    )
    overall = min(must, key=worst_first.index)
    sizes = {verdict for verdict, size in verdicts if size}
    if overall == "holds" and sizes & {"does not hold", "out of reach", "holds here only"}:
        return "holds here only"
    if overall == "holds" and sizes & {"inconclusive", "not yet measured"}:
        return "inconclusive"
    return overall


def blocked_by(answers: Mapping[str, Answer]) -> list[str]:
    """The undecided frameworks that have more settings with enough repeats than those that decide,
    or as many that point elsewhere.
    """
    decided = [answer for answer in answers.values() if answer.verdict in DECIDED]
    count = sum(answer.decidable for answer in decided)
    fails = {answer.verdict == "does not hold" for answer in decided}
    undecided = [
        (name, answer, {answer.leaning == "does not hold"})
        for name, answer in answers.items()
        if answer.verdict == "inconclusive"
    ]
    return [
        name
        for name, answer, fail in undecided
        if answer.decidable > count or (answer.decidable == count and fail != fails)
    ]


def combine(answers: Mapping[str, Answer]) -> Answer:
    """One answer of all frameworks: that of the decided ones if they agree, unless an undecided one
    that could decide more blocks it.
    """
    answers = {framework_title(name): answer for name, answer in answers.items()}
    first: list[Verdict] = [
        "does not hold",
        "holds here only",
        "holds",
        "inconclusive",
        "out of reach",
        "not yet measured",
    ]
    verdict = min((answer.verdict for answer in answers.values()), key=first.index)
    decided = {name: answer for name, answer in answers.items() if answer.verdict in DECIDED}
    named = decided or {
        name: answer for name, answer in answers.items() if answer.verdict == verdict
    }
    told = {name: answer.figure for name, answer in answers.items() if answer.figure}
    why = _of_each({name: answer.why for name, answer in named.items()})
    if decided and (blocking := blocked_by(answers)):
        rest = f"{joined(blocking)}, measured in as many settings or more, leaves it open"
        verdict = "inconclusive"
        why = (
            f"by {joined([*decided])} alone it is decided; {rest}:"
            f" {'; '.join(answers[name].why for name in blocking)}"
        )
    elif verdict == "does not hold" and {answer.verdict for answer in decided.values()} != {
        verdict
    }:
        verdict = "inconclusive"
        why = (
            "frameworks differ:"
            f" {', '.join(f'{name} {answer.verdict}' for name, answer in decided.items())}"
        )
    elif decided and (
        open_ones := [name for name, answer in answers.items() if answer.verdict == "inconclusive"]
    ):
        why = _joined(
            [why, f"decided by {joined([*decided])}, inconclusive in {joined(open_ones)}"]
        )
    figure = "; ".join(
        figure if len(told) == 1 else f"{name}: {figure}" for name, figure in told.items()
    )
    scope = _of_each({name: answer.scope for name, answer in named.items()})
    return _answer(verdict, figure, [why], [scope], _keys(answers.values()))


def _of_each(texts: Mapping[str, str]) -> str:
    """Join the texts of each framework, once where all say the same."""
    same = len(set(texts.values())) == 1
    return _joined(text if same else f"{name}: {text}" for name, text in texts.items() if text)
