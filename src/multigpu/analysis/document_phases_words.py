"""What the page of document 000's profile says, as sentences computed from the traced Records there are."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

import pandas as pd

from multigpu.analysis.document_phases import document_replicas, document_whole, growth, replicas_frame, whole_frame
from multigpu.analysis.document_phases_page import (
    COUNTS,
    FRAMEWORKS,
    ms,
    percent,
    pooled,
    results,
    skew_text,
    ways,
    wholes,
)
from multigpu.analysis.wording import FRAMEWORK_NAMES, joined, plural
from multigpu.record import Record

NOTHING = (
    "No step of Exp4 with sentences of one length has been traced on GPUs yet: `python -m multigpu measure --grid phases` does so, on a "
    "machine with GPUs. The document's own figures stand below."
)


def coverage(records: Sequence[Record]) -> str:
    """Which counts of 1 to 8 GPUs have Records and which have none yet, for each way, and which framework has none at all."""
    said = []
    for name, mine in ways(records).items():
        counts = sorted({record.run.devices for record in mine})
        lacking = [count for count in COUNTS if count not in counts]
        later = f", not yet on {joined([str(count) for count in lacking])}" if lacking else ""
        said.append(f"{name} on {joined([str(count) for count in counts])}{later}")
    unseen = [FRAMEWORK_NAMES[name] for name in FRAMEWORKS if name not in {record.run.framework for record in records}]
    text = f"GPUs traced: {'; '.join(said)}." if said else ""
    return " ".join(filter(None, [text, f"Not traced yet: {joined(unseen)}." if unseen else ""]))


def growth_sentence(name: str, replicas: pd.DataFrame, whole: pd.DataFrame, records: Sequence[Record] = ()) -> str | None:
    """From the fewest to the most GPUs: forward, backward, unevenness, launch skew and shares. None of fewer than two counts.

    Args:
        records: those of the frames; growth is theirs, with an interval, as the claims have it. Without any: of the frames' means.
    """
    counts = sorted(int(count) for count in whole["devices"])
    if len(counts) < 2:
        return None
    low, most = counts[0], counts[-1]
    first, last = (whole[whole["devices"] == count].iloc[0] for count in (low, most))
    mean = replicas.groupby("devices")[["forward_s", "backward_s"]].mean()
    times = {}
    for phase in ("forward", "backward"):
        found = growth(records, f"{phase}_s", low, most)
        ratio = found[0] if found else mean[f"{phase}_s"].loc[most] / mean[f"{phase}_s"].loc[low]
        bounds = "" if found is None or isnan(found[1]) else f" ({found[1]:.2f} to {found[2]:.2f})"
        times[phase] = f"{ratio:.2f} times{' as long' if phase == 'forward' else ''}{bounds}"
    skew = f"launch skew **{ms(last['launch_skew_s'])} ms**, {skew_text(last)} of the computation's span"
    return (
        f"**{name}**, {low} to {most} GPUs{_measured(whole)}: mean forward {times['forward']}, mean backward {times['backward']}; slowest "
        f"over mean forward {last['forward_imbalance']:.2f} on {most}; {skew}; {_shares(whole, first, last)}."
    )


def _measured(whole: pd.DataFrame) -> str:
    """How often each count was measured, for the begin of a sentence; nothing for the document."""
    if "n" not in whole:
        return ""
    least, most = int(whole["n"].min()), int(whole["n"].max())
    return " (measured once)" if most == 1 else f" (n = {least})" if least == most else f" (n = {least} to {most})"


def _shares(whole: pd.DataFrame, first: pd.Series, last: pd.Series) -> str:
    """The shares of computation and of merge on the fewest and the most GPUs, or that they are not known."""

    def on(row: pd.Series, part: str) -> str:
        share = row[f"{part}_share"]
        return f"{'not known' if isnan(share) else percent(share)} on {int(row['devices'])}"

    merged = whole[(whole["devices"] > 1) & (whole["merge_s"] > 0)]
    merge = f"; of merge {on(merged.iloc[0], 'merge')}, {on(last, 'merge')}" if len(merged) > 1 else ""
    return f"share of computation {on(first, 'computation')}, {on(last, 'computation')}{merge}"


def answers(records: Sequence[Record]) -> list[str]:
    """The page's answer: the document's figures and ours in the same words, the verdicts so far, and what is not measured."""
    skew = skew_finding(records)
    said = [f"**{skew}.**" if skew else None, growth_sentence("Document 000", document_replicas(), document_whole())]
    for name, whole in wholes(records).items():
        mine = ways(records)[name]
        said.append(growth_sentence(name, pooled(replicas_frame(mine), ["devices", "rank"]), whole, mine))
    words = "; ".join(f"{result.claim.number} {result.verdict}" for result in results(records))
    return [text for text in said if text] + [f"Verdicts: {words}. {coverage(records)}" if records else NOTHING]


def skew_finding(records: Sequence[Record]) -> str | None:
    """Launch skew as a share of the computation's span on the most GPUs: the document's, and the largest and smallest of ours."""
    last = {name: table.iloc[-1] for name, table in wholes(records).items() if table["devices"].max() > 1}
    if not last:
        return None
    ranked = sorted(last, key=lambda name: float(last[name]["skew_share"]))

    def said(name: str) -> str:
        row = last[name]
        return f"{skew_text(row)} on {int(row['devices'])} ({name})"

    theirs = document_whole().iloc[-1]
    both = f" and {said(ranked[0])}" if len(ranked) > 1 else ""
    return (
        f"Launch skew is {skew_text(theirs)} of the computation's span on the document's {int(theirs['devices'])} GPUs; here "
        f"{said(ranked[-1])}{both}"
    )


def document_sentence() -> str:
    """The document's profile against its own timed step: how many times as long its phases are together."""
    whole = document_whole().dropna(subset=["timed_step_s"])
    said = [f"{row['total_s'] / row['timed_step_s']:.1f} times on {plural(int(row['devices']), 'GPU')}" for _, row in whole.iterrows()]
    return (
        f"The document's three phases add up to more than its own timed step with sentences of one length: {joined(said)}. "
        "Its profile is of a slower step than it timed, or its phases overlap by as much."
    )


def clipped_sentence(records: Sequence[Record]) -> str | None:
    """In how many Records forward reached past backward's begin and was cut there. None without any."""
    frame = replicas_frame(records)
    cut = frame[frame["clipped_s"] > 0]
    if cut.empty:
        return None
    keys = cut["key"].nunique()
    named = joined(sorted({FRAMEWORK_NAMES[r.run.framework] for r in records if r.key in set(cut["key"])}))
    return (
        f"In {plural(keys, 'Record')} of {named} the trace's forward reaches past the begin of backward, by up to "
        f"{ms(cut['clipped_s'].max())} ms; here it ends where backward begins, as the document defines it."
    )


def early_update_sentence(records: Sequence[Record]) -> str | None:
    """On how many replicas the update begins before backward, so that how long it took is not known. None without any."""
    frame = replicas_frame(records)
    early = frame[frame["early_update"].astype(bool)]
    if early.empty:
        return None
    named = joined(sorted({FRAMEWORK_NAMES[r.run.framework] for r in records if r.key in set(early["key"])}))
    return (
        f"On {plural(len(early), 'replica')} of {plural(early['key'].nunique(), 'Record')} of {named} the update's first operation runs "
        "before backward begins, so before there are gradients: a span from there on is not the time of updating. That time, and with it "
        "every share of the step, counts as not known."
    )


def overlap_sentence(records: Sequence[Record]) -> str | None:
    """How much longer the sum of phases is than the step on the most GPUs, by way."""
    said = []
    for name, whole in wholes(records).items():
        last = whole.iloc[-1]
        if isnan(last["total_over_step"]):
            continue
        said.append(f"{last['total_over_step']:.2f} on {plural(int(last['devices']), 'GPU')} ({name})")
    return f"The sum of computation, merge and update over the traced step is {'; '.join(said)}." if said else None


def spread_sentence(records: Sequence[Record]) -> str | None:
    """How far the timed step of each way on the most GPUs differs between repeats. None where all were measured once."""
    said = []
    for name, mine in ways(records).items():
        whole = whole_frame(mine)
        # several traces may stand beside one untraced Record
        last = whole[whole["devices"] == whole["devices"].max()]["timed_step_s"].drop_duplicates()
        if len(last) > 1:
            said.append(
                f"{ms(last.min())} to {ms(last.max())} ms on {plural(int(whole['devices'].max()), 'GPU')} ({name}, n = {len(last)})"
            )
    return f"Without the profiler a step took, from the fastest repeat to the slowest, {'; '.join(said)}." if said else None
