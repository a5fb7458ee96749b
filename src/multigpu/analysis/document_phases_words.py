"""What the page of document 000's profile says, as sentences computed from the traced Records there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan

import pandas as pd

from multigpu.analysis.document_phases import document_replicas, document_whole, growth, replicas_frame, whole_frame
from multigpu.analysis.document_phases_page import (
    COUNTS,
    DOCUMENT,
    FRAMEWORKS,
    leading,
    ms,
    pooled,
    results,
    skew_text,
    ways,
    wholes,
)
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import FRAMEWORK_NAMES, joined, plural, with_interval
from multigpu.record import Record

NOTHING = (
    "No step of Exp4 with sentences of one length has been traced on GPUs yet: `python -m multigpu measure --grid phases` does so, on a "
    "machine with GPUs. The document's own figures stand below."
)


PHASES = ("forward", "backward")
TWICE = 2.0
"""A traced step longer than so many timed ones is mostly the profiler's."""


@dataclass(frozen=True)
class Grown:
    """Mean forward and backward on the `most` GPUs over those on the fewest (`low`): ratio and its 95% interval, NaN where there is
    none. n: repeats a number of GPUs, in words.
    """

    low: int
    most: int
    n: str
    forward: tuple[float, float, float]
    backward: tuple[float, float, float]


def coverage(records: Sequence[Record]) -> str:
    """Which counts of 1 to 8 GPUs each way has Records of, which none has, and which framework has none at all."""
    said, seen = [], set()
    for name, mine in ways(records).items():
        counts = sorted({record.run.devices for record in mine})
        seen |= set(counts)
        said.append(f"{name} on {joined([str(count) for count in counts])}")
    lacking = [str(count) for count in COUNTS if count not in seen]
    unseen = [FRAMEWORK_NAMES[name] for name in FRAMEWORKS if name not in {record.run.framework for record in records}]
    text = f"GPUs traced: {'; '.join(said)}." if said else ""
    none = f"None of them yet on {joined(lacking)}." if said and lacking else ""
    return " ".join(filter(None, [text, none, f"Not traced yet: {joined(unseen)}." if unseen else ""]))


def grown(records: Sequence[Record]) -> dict[str, Grown]:
    """By how much the mean forward and backward of each way, and of the document, grow from the fewest to the most GPUs.

    Ways of fewer than two counts, and those whose passes are not known, are left out.
    """
    table = document_replicas()
    mean = table.groupby("devices")[["forward_s", "backward_s"]].mean()
    low, most = int(mean.index.min()), int(mean.index.max())
    ratios = {phase: (float(mean[f"{phase}_s"].loc[most] / mean[f"{phase}_s"].loc[low]), nan, nan) for phase in PHASES}
    found = {DOCUMENT: Grown(low, most, "–", ratios["forward"], ratios["backward"])}
    for name, mine in ways(records).items():
        counts = sorted({record.run.devices for record in mine})
        growths = [growth(mine, f"{phase}_s", counts[0], counts[-1]) for phase in PHASES]
        forward, backward = growths
        if len(counts) > 1 and forward is not None and backward is not None:
            repeats = sorted(Counter(record.run.devices for record in mine).values())
            n = f"{repeats[0]}" if repeats[0] == repeats[-1] else f"{repeats[0]} to {repeats[-1]}"
            found[name] = Grown(counts[0], counts[-1], n, forward, backward)
    return found


def growth_table(records: Sequence[Record]) -> Shown:
    """`grown` in words: a row the document's, then one a way."""
    rows = [
        {
            "measured by": name,
            "GPUs": f"{each.low} to {each.most}",
            **{
                f"mean {phase}": with_interval(f"{ratio:.2f}", low, high, ".2f")
                for phase, (ratio, low, high) in (("forward", each.forward), ("backward", each.backward))
            },
            "n": each.n,
        }
        for name, each in grown(records).items()
    ]
    note = "Time on the most GPUs over that on the fewest, 95% intervals; none where a side was measured once. n: repeats a number of GPUs."
    return table_html(pd.DataFrame(rows), note=note, right=["mean forward", "mean backward"])


def compared(records: Sequence[Record]) -> tuple[int, dict[str, list[Record]]]:
    """The most GPUs on which ways were traced several times, and the Records of these ways on every number of GPUs: only equal numbers of
    GPUs and repeated points are set beside each other. Where no way was repeated, those traced once; 0 and none without several GPUs.
    """
    mine = ways([record for record in leading(records) if len(whole_frame([record]))])
    times = {(name, count): n for name, own in mine.items() for count, n in Counter(r.run.devices for r in own).items() if count > 1}
    chosen = [point for point, n in times.items() if n > 1] or list(times)
    most = max((count for _, count in chosen), default=0)
    return most, {name: own for name, own in mine.items() if (name, most) in chosen}


def _once(own: Sequence[Record], count: int) -> str:
    return "" if sum(record.run.devices == count for record in own) > 1 else ", traced once"


def forward_finding(records: Sequence[Record]) -> str | None:
    """By how much forward grows from one GPU to the most that were compared (`compared`): the document's, each way's. None without ours."""
    most, found = compared(records)
    said = []
    for name, own in found.items():
        each = growth(own, "forward_s", 1, most)
        if each is not None:
            ratio, low, high = each
            said.append(f"{with_interval(f'{ratio:.2f}', low, high, '.2f')} times ({name}{_once(own, most)})")
    mean = document_replicas().groupby("devices")["forward_s"].mean()
    if not said or most not in mean.index:
        return None
    last = int(mean.index.max())
    further = "" if most == last else f" ({mean.loc[last] / mean.loc[1]:.2f} on {last})"
    return (
        f"The document's mean forward takes {mean.loc[most] / mean.loc[1]:.2f} times as long on {most} GPUs as on 1{further}; here "
        f"{joined(said)}."
    )


def does_sentence(records: Sequence[Record]) -> str | None:
    """How long each phase of a step takes on a GPU, mean over the GPUs that are compared, beside the whole step traced and timed."""
    most, found = compared(records)
    said = []
    for name, own in found.items():
        there = [record for record in own if record.run.devices == most]
        each, whole = replicas_frame(there), whole_frame(there)
        times = {phase: each[f"{phase}_s"] for phase in (*PHASES, "merge", "update") if each[f"{phase}_s"].notna().any()}
        parts = [f"{phase} {'not known' if of.isna().any() else ms(of.mean())}" for phase, of in times.items()]
        said.append(
            f"{name}: {joined(parts)}, of a step of {ms(whole['step_s'].mean())} traced and {ms(whole['timed_step_s'].mean())} timed"
        )
    if not said:
        return None
    return f"What a GPU does in a step on {most}, in ms from a phase's first work to its last, so that phases overlap: {'; '.join(said)}."


def profiled_sentence(records: Sequence[Record]) -> str | None:
    """How many times as long a step takes under the profiler as timed without, and which ways' phases are mostly the profiler's."""
    most, found = compared(records)
    ratios: dict[str, tuple[float, str]] = {}
    for name, own in found.items():
        whole = whole_frame([record for record in own if record.run.devices == most])
        step, timed = whole["step_s"].mean(), whole["timed_step_s"].mean()
        if timed > 0:
            ratios[name] = (step / timed, f"{step / timed:.1f} times ({name}: {ms(step)} against {ms(timed)} ms)")
    if not ratios:
        return None
    mostly = [name for name, (ratio, _) in ratios.items() if ratio > TWICE]
    end = (
        f" In {joined(mostly)} more of a traced step is the profiler's than the step's own: phases there, and what C6 to C9 make of them, "
        "are of a slower host than the timed steps had."
        if mostly
        else ""
    )
    return (
        f"Under the profiler a step on {most} GPUs takes {joined([text for _, text in ratios.values()])} as long as timed without it.{end}"
    )


def answers(records: Sequence[Record]) -> list[str]:
    """The page's answer: launch skew and forward, the document's beside ours; what a GPU does in a step; the verdicts so far."""
    skew, (_, found) = skew_finding(records), compared(records)
    first = " TensorFlow dispatches for all GPUs from one process, as in 2018." if FRAMEWORK_NAMES[FRAMEWORKS[0]] in found else ""
    said = [f"**{skew}.**{first}" if skew else None, forward_finding(records), does_sentence(records)]
    words = "; ".join(f"{result.claim.number} {result.verdict}" for result in results(records))
    return [text for text in said if text] + [f"Verdicts: {words}." if records else NOTHING]


def skew_finding(records: Sequence[Record]) -> str | None:
    """Launch skew as a share of the computation's span on the most GPUs that are compared (`compared`), the document's beside ours."""
    most, found = compared(records)
    tables = {name: pooled(whole_frame([r for r in own if r.run.devices == most]), ["devices"]) for name, own in found.items()}
    said = [f"{skew_text(table.iloc[0])} ({name}{_once(found[name], most)})" for name, table in tables.items()]
    if not said:
        return None
    theirs = {int(row["devices"]): skew_text(row) for _, row in document_whole().iterrows()}
    document = joined([f"{theirs[count]} on {count}" for count in dict.fromkeys((most, max(theirs))) if count in theirs])
    return f"Launch skew on {most} GPUs is {joined(said)} of the computation's span; the document's is {document}"


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
        f"In {plural(keys, 'Record')} of {named} the trace's forward reaches past the start of backward, by up to "
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
    for name, whole in wholes(leading(records)).items():
        last = whole.iloc[-1]
        if isnan(last["total_over_step"]):
            continue
        said.append(f"{last['total_over_step']:.2f} on {plural(int(last['devices']), 'GPU')} ({name})")
    return f"The sum of computation, merge and update over the traced step is {'; '.join(said)}." if said else None


def spread_sentence(records: Sequence[Record]) -> str | None:
    """How far the timed step of each way on the most GPUs differs between repeats. None where all were measured once."""
    said = []
    for name, mine in ways(leading(records)).items():
        whole = whole_frame(mine)
        # several traces may stand beside one untraced Record
        last = whole[whole["devices"] == whole["devices"].max()]["timed_step_s"].drop_duplicates()
        if len(last) > 1:
            said.append(
                f"{ms(last.min())} to {ms(last.max())} ms on {plural(int(whole['devices'].max()), 'GPU')} ({name}, n = {len(last)})"
            )
    return f"Without the profiler a step took, from the fastest repeat to the slowest, {'; '.join(said)}." if said else None
