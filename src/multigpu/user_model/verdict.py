"""The finding of a comparison in words: what costs a step most where that is not computing, which
placement is ahead, and how sure that is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from multigpu.analysis.estimate import Estimate
from multigpu.analysis.parts import Traced
from multigpu.analysis.points import Missing
from multigpu.analysis.words import devices_text, joined, plural
from multigpu.placements import placements
from multigpu.user_model.fits import GIB, NEEDS, memories_of, room_of
from multigpu.user_model.parts import (
    COMPUTING,
    INPUT,
    MERGING,
    SHARED,
    input_of,
    parts,
    slow_rank,
    step_of,
    traced_of,
)
from multigpu.user_model.placed import Placed, bracketed
from multigpu.user_model.race import LAUNCHES
from multigpu.user_model.trust import figure_text

if TYPE_CHECKING:
    from multigpu.user_model.result import Result

MOST = 0.5  # of a part, or of the parameters: a layer that has so much of it is named
MENTIONED, FIRST = 0.05, 0.25
"""Shares of a step: a cause of at least the first is said, one of at least the second that is the
largest beside computing is said before anything else.
"""


def titled(name: str) -> str:
    """Describe a placement in a few words."""
    row = placements().get(name.partition(",")[0])
    return row.title if row else ""


def answer(result: Result) -> list[str]:
    """Write a paragraph each: what costs most, what is ahead and how sure, what costs less."""
    causes = list(_causes(result))
    first = [words for share, words, leads in causes if leads and share >= FIRST]
    rest = [words for _, words, _ in causes if words not in first]
    room, is_short = fitting(result)
    said = [*first, sentence(result), *rest]
    return said if not room else [room, *said] if is_short else [*said, room]


def fitting(result: Result) -> tuple[str, bool]:
    """Say which ways were not launched since they cannot fit, or what the fullest needs and the
    leader's largest batch; and whether any does not fit. Not known: "".
    """
    short = {name: why for name, why in result.refused.items() if why.startswith(NEEDS)}
    if short:
        name, why = next(iter(short.items()))
        return f"{plural(len(short), 'way')} cannot fit. {name}: {why}.", True
    memories = memories_of(result.runs, result.described)
    if not memories or not result.records:
        return "", False
    run, needs = result.runs[0], dict[str, float]()
    for name, memory in memories.items():
        needs[name] = memory.peak(run.batch_size)
    fullest, best = max(needs, key=lambda name: needs[name]), result.best
    room = room_of(result.records[0].machine, run.device_type, max(r.devices for r in result.runs))
    said = (
        f"Every way whose memory can be forecast fits: {fullest} needs most,"
        f" {needs[fullest] / GIB:.3g} of {room / GIB:.3g} GiB a device"
    )
    if best is not None and best.name in memories:
        largest = memories[best.name].largest_batch(room)
        said += f"; {best.name} takes a batch of up to {largest:,} there"
    return f"{said}.", False


def _causes(result: Result) -> list[tuple[float, str, bool]]:
    """Return the costs of a step, the larger first: its share of the step, in words, and whether it
    may come before the verdict, as computing that no trace tells apart may not. Of a traced
    placement its largest part, and what else is no computing.
    """
    try:
        placed = result.chosen(None)
        told = parts(result, placed)
        slow = slow_rank(result, placed)
    except Missing:
        return []
    fed_s = float(placed.row["fed_step_s"])
    found = []
    waited = input_of(result, placed.name)
    if waited and waited.value >= MENTIONED * fed_s and (not waited.known or waited.low > 0):
        found.append((waited.value / fed_s, _input_words(result, placed, waited), True))
    if trace := traced_of(result, placed):
        if trace.largest != "input":
            found.append((trace.parts[trace.largest] / fed_s, _part_words(placed, trace), True))
        return sorted(found, reverse=True)
    of_rank = told[told["known_by"].eq(slow.known_by)]["ms"].sum() / 1e3 if slow else 0.0
    if slow and of_rank >= MENTIONED * fed_s:
        found.append((of_rank / fed_s, _waiting_words(slow.rank, of_rank, fed_s), True))
    # without a trace: the largest of what differences of measured steps tell
    others = told[~told["cause"].eq(INPUT) & ~told["known_by"].eq(slow.known_by if slow else "")]
    if len(others):
        cause = others.sort_values("ms", kind="stable").iloc[-1]
        leads = cause["cause"] != COMPUTING
        found.append((cause["ms"] / 1e3 / fed_s, _cause_words(placed, cause), leads))
    return sorted(found, reverse=True)


def _cause_words(placed: Placed, cause: pd.Series) -> str:
    """Say what of a step that was not traced takes most beside input and a slow rank."""
    fed_s = float(placed.row["fed_step_s"])
    told = (
        f"{Estimate(cause['ms'] / 1e3):ms} of {placed.name}'s step of {Estimate(fed_s):ms}"
        f" ({Estimate(cause['ms'] / 1e3 / fed_s):percent})"
    )
    if cause["cause"] == MERGING:
        moved = placed.row["moved_bytes"]
        what = "" if pd.isna(moved) else f": {Estimate(float(moved)):bytes} travel"
        return f"Merging takes {told}{what}."
    if cause["cause"] == COMPUTING:
        alike = ", as long as on one device" if placed.run.devices > 1 else ""
        return f"Computing takes {told}{alike}; launching kernels is within it."
    if cause["cause"] == SHARED:
        return f"Sharing this machine takes {told}: replicas that share nothing else pay it too."
    return f"What the placement does beside computing takes {told}."


def _waiting_words(rank: int, waited_s: float, fed_s: float) -> str:
    return (
        f"Rank {rank} is slow: the others wait {Estimate(waited_s):ms} of a step of"
        f" {Estimate(fed_s):ms} for it."
    )


def _part_words(placed: Placed, trace: Traced) -> str:
    """Say which part takes most of a step, and in which layer, if one has most of it."""
    part, fed_s = trace.largest, float(placed.row["fed_step_s"])
    seconds = trace.parts[part]
    if part == "waiting" and trace.last is not None:
        return _waiting_words(trace.last, seconds, fed_s)
    told = (
        f"{Estimate(seconds):ms} of {placed.name}'s step of {Estimate(fed_s):ms}"
        f" ({Estimate(seconds / fed_s):percent})"
    )
    dearest = next(iter(trace.layers), "")
    owner = max(trace.owns, key=lambda name: trace.owns[name], default="")
    if part == "merging":
        moved = placed.row["moved_bytes"]
        what = "" if pd.isna(moved) else f": {Estimate(float(moved)):bytes} travel"
        if owner and trace.owns[owner] >= MOST:
            what += f", {Estimate(trace.owns[owner]):percent} of them for {owner}"
        return f"Merging takes {told}{what}."
    if part == "launch":
        each = Estimate(fed_s / trace.operations) if trace.operations else None
        small = f": {trace.operations:,.0f} operations, one each {each:ms}" if each else ""
        return (
            f"Launching kernels takes {told}{small}; larger operations, or compiled and captured"
            " steps, need fewer launches."
        )
    where = ""
    if dearest and trace.layers[dearest] >= MOST * seconds / fed_s:
        where = f", most of it in {dearest}"
    if part == "waiting":
        return f"Waiting for other ranks takes {told}: none of them is always the last."
    if part == "rest":
        return f"The host does something else for {told}{where}."
    return f"Computing takes {told}{where}."


def _input_words(result: Result, placed: Placed, waited: Estimate) -> str:
    """Say what making batches costs a step, and what would hide it."""
    described, run = result.described, placed.run
    fed, ready = Estimate(float(placed.row["fed_step_s"])), step_of(result, placed.name)
    making_s = described.batch_s * (run.devices if run.processes == "one" else 1)
    share = Estimate(waited.value / fed.value)
    step = f"{placed.name}'s step" if run.devices > 1 else "a step"
    found = (
        f"Your {described.batch_by} costs {Estimate(waited.value):ms} of {step} of {fed:ms}"
        f" ({share:percent})"
    )
    if making_s:
        found += f", and takes {Estimate(making_s):ms} by itself"
    found += f"; with batches ready a step takes {Estimate(ready.value):ms}."
    if making_s:
        workers = math.ceil(making_s / ready.value)
        every = workers if run.processes == "one" else workers * run.devices
        cores = result.records[0].machine.cores
        said = f"; this machine has {plural(cores, 'core')}" if every > cores else ""
        hide = "would hide it" if workers > 1 else "that competes with nothing would hide it"
        what = plural(workers, "input worker")
        a_device = "" if run.processes == "one" else " a device"
        found += f" {what}{a_device} {hide}{said}."
    return found


def sentence(result: Result) -> str:
    """Which placement is ahead, and how sure that is."""
    if result.is_alone:
        return _none_reached(result)
    ahead, best = result.ahead, result.best
    if ahead is None:
        return "Nothing that trains what one process does was measured."
    if best is None:
        shorts = dict.fromkeys(doubt.short for own in result.doubts.values() for doubt in own)
        why = joined(list(shorts))
        return f"No verdict: no figure here can be believed ({why}). Ahead as measured: {ahead}."
    left = len(result.left_out)
    beside = f" {plural(left, 'way')} {'was' if left == 1 else 'were'} not tried." if left else ""
    return _sure(result, best) + beside


def _may_be_faster(result: Result) -> list[Placed]:
    """Placements that are not believed, and that the race does not show to be slower."""
    race = result.race
    doubted = [
        name for name in result.names if result.doubts[name] and result.trains_the_same(name)
    ]
    return [result[name] for name in doubted if race is None or name not in race.behind]


def _none_reached(result: Result) -> str:
    count = max(run.devices for run in result.runs)
    on = devices_text(count, result.runs[0].device_type)
    if result.left_out:
        found = f"No placement was reached within the budget of {result.budget_s:g} s"
    elif result.failed:
        name, why = next(iter(result.failed.items()))
        found = f"No placement on {on} could be measured ({name}: {why})"
    else:
        found = f"No placement on {on} that trains what one process does was asked for"
    if (base := result.base) is None:
        return f"{found}, nor was one device."
    rate = figure_text(base.rate, "rate")
    return f"{found}: one device trains {rate}, and whether {on} train faster is not known."


def _sure(result: Result, best: Placed) -> str:
    """The best, as a verdict or as not told apart."""
    base, rivals = result.base, result.rivals
    which = f"{best.name} ({titled(best.name)})" if best.run.devices > 1 else best.name
    told = str(best).replace(best.name, which, 1)
    doubted = base is not None and base.name != best.name and result.doubts[base.name]
    if doubted:
        short = joined([doubt.short for doubt in doubted])
        return f"No verdict, since one device's figure is not believed ({short}): {told}."
    if unsure := _may_be_faster(result):
        named = [
            f"{placed.name} ({placed.rate:rate},"
            f" {joined([doubt.short for doubt in result.doubts[placed.name]])})"
            for placed in unsure
        ]
        return (
            f"No verdict: {joined(named)} may be faster, and cannot be believed as measured. Of"
            f" what can, {told} is ahead."
        )
    few = _too_few(result, best)
    yet = f" yet ({few}; a verdict takes {LAUNCHES} of each)" if few else ""
    if rivals:
        return f"Not told apart{yet}: {told}, and {joined([bracketed(name) for name in rivals])}."
    if few:
        return f"Not told apart{yet}: {told} is ahead."
    return f"Fastest: {told}."


def _too_few(result: Result, best: Placed) -> str:
    """Count launches of best, rival and one device where they are too few; "": they suffice."""
    rival = result.believed.rival if result.believed else None
    sides = [best.name, *([rival] if rival else []), *([result.base.name] if result.base else [])]
    counts = {name: int(result[name].row["launches"]) for name in sides}
    least = min(counts, key=lambda name: counts[name])
    if counts[least] >= LAUNCHES:
        return ""
    return f"{plural(counts[least], 'launch', 'launches')} of {least}"
