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
from multigpu.user_model.parts import input_of, parts, slow_rank, step_of, traced_of
from multigpu.user_model.placed import Placed
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
    """Write what was found, a paragraph each: what costs most, what is ahead and how sure that is,
    and what costs less.
    """
    causes = list(_causes(result))
    first = [words for share, words in causes if share >= FIRST]
    rest = [words for share, words in causes if share < FIRST]
    return [*first, sentence(result), *rest]


def _causes(result: Result) -> list[tuple[float, str]]:
    """Return the costs of a step: its share of the step, and in words; the larger first. Of a
    traced placement its largest part, and what else is no computing.
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
        found.append((waited.value / fed_s, _input_words(result, placed, waited)))
    if trace := traced_of(result, placed):
        if trace.largest != "input":
            found.append((trace.parts[trace.largest] / fed_s, _part_words(placed, trace)))
        return sorted(found, reverse=True)
    of_rank = told[told["known_by"].eq(slow.known_by)]["ms"].sum() / 1e3 if slow else 0.0
    if slow and of_rank >= MENTIONED * fed_s:
        found.append((of_rank / fed_s, _waiting_words(slow.rank, of_rank, fed_s)))
    return sorted(found, reverse=True)


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
    return _sure(result, best)


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
    if rivals:
        return f"Not told apart: {told}, and {joined(rivals)}."
    if few := _too_few(result, best):
        return f"Not told apart yet ({few}; a verdict takes {LAUNCHES} of each): {told} is ahead."
    return f"Fastest: {told}."


def _too_few(result: Result, best: Placed) -> str:
    """How many launches there are of the best, of its rival or of one device, where that is not
    enough for a verdict; "": it is.
    """
    rival = result.believed.rival if result.believed else None
    sides = [best.name, *([rival] if rival else []), *([result.base.name] if result.base else [])]
    counts = {name: int(result[name].row["launches"]) for name in sides}
    least = min(counts, key=lambda name: counts[name])
    if counts[least] >= LAUNCHES:
        return ""
    return f"{plural(counts[least], 'launch', 'launches')} of {least}"
