"""Why a point is as fast as it is, in one sentence computed from its explanation (`explain.Explanation`)."""

from __future__ import annotations

from multigpu.analysis.explain import Explanation
from multigpu.analysis.explain_parts import WAITS, Baseline
from multigpu.analysis.wording import device_word, device_words, devices_text, missing, percent_text, ratio_text

NEAR = 0.95
"""Of the ideal: from here on little is lost, and no cause is named."""


def ms_text(seconds: float) -> str:
    """Seconds as milliseconds: "23.7 ms"; two decimals below 10."""
    return "–" if missing(seconds) else f"{1e3 * seconds:.{1 if abs(seconds) >= 0.01 else 2}f} ms"


def verdict(one: Explanation) -> str:
    """The answer in one sentence: how the point compares with one device at its best, and because of what."""
    base = one.baselines.get(one.base)
    if base is None:
        opening = f"No Run of this job on one {device_word(one.row['device_type'])} was measured, so what is lost against it is not known"
        return f"{opening}; {_largest(one)}."
    if base.row["keys"] == one.row["keys"]:
        word = device_word(one.row["device_type"])
        return f"Of what was measured of this job, this is one {word} at its best; {_largest(one)}."
    opening, lost = _opening(one, base, one.base == "kept")
    return f"{opening}{_because(one, base)}." if lost else f"{opening}: little is lost."


def _opening(one: Explanation, base: Baseline, kept: bool) -> tuple[str, bool]:
    """How the point compares, and whether anything is lost that needs a cause."""
    devices, kind = int(one.row["devices"]), one.row["device_type"]
    many, word = devices_text(devices, kind), device_word(kind)
    share, times = percent_text(base.ratio, base.low, base.high), ratio_text(base.ratio, base.low, base.high)
    if missing(base.low):
        sure = "measured once" if max(one.row["n"], base.row["n"]) == 1 else "one side measured once"
        share, times = f"{share} ({sure})", f"{times} ({sure})"
    if kept:
        verb, does = ("trains", "it does") if devices == 1 else ("train", "they do")
        return f"{many} {verb} {share} of what {does} with batches kept on the device", base.ratio < NEAR
    if devices == 1:
        return f"1 {word} trains {share} of what one {word} does at its best", base.ratio < NEAR
    if base.high < 1 or (missing(base.high) and base.ratio < 1):
        return f"{many} are slower than one, {times} one {word} at its best", True
    if base.low <= 1:
        return f"{many} are not told apart from one, {times} one {word} at its best", True
    return f"{many} train {times} what one {word} does at its best, {percent_text(base.of_ideal)} of {devices} times", base.of_ideal < NEAR


def _because(one: Explanation, base: Baseline) -> str:
    """The part that adds most, and the next one where it adds at least half as much; without a trace, what else is known."""
    added = one.added()
    if added is None or one.parts is None:
        lost, waits = one.step_s - base.ideal_step_s, f"it waits {ms_text(one.wait_s)} a step"
        if one.wait_s >= 0.5 * lost:
            return f", because each step waits {ms_text(one.wait_s)} of its {ms_text(one.step_s)} for its batch (input)"
        known = f"; {'batches are in time' if one.wait_s < 0.1 * lost else 'batches are late'} ({waits}), but" if one.wait_s > 0 else ";"
        return f"{known} why it takes longer was not measured, since no Run of this point was traced{_known(one, base)}"
    first, second = sorted(added, key=lambda name: -added[name])[:2]
    if added[first] <= 0:
        return "; no part of its traced step explains it"
    text = f", because {_phrase(one, first, base, f'of a step of {ms_text(one.step_s)}')}"
    return text + (f", and {_phrase(one, second, base, 'of it')}" if added[second] >= 0.5 * added[first] else "")


def _phrase(one: Explanation, part: str, base: Baseline | None, of: str) -> str:
    """What a part did, with its time of the step (`of`), and whose part of the baseline it is compared with."""
    assert one.parts is not None
    word = device_word(one.row["device_type"])
    took = ms_text(one.parts[part])
    each = f"the {word} that waited least" if one.shared_model else f"each {word}"
    if part == "compute":
        if base is not None and base.parts is not None:
            return f"{each} computes {took} {of}, {ms_text(base.parts['compute'])} its share at one's best (slower computation)"
        ideal = "" if base is None else f", where the whole step would take {ms_text(base.ideal_step_s)} at one's best"
        return f"{each} computes {took} {of}{ideal} (slower computation)"
    if part == "launching":
        what = f"the {word} idles {took} {of}"
        if one.shared_model:
            return f"{what} while the host dispatches or another {word} has its turn (for that, {ms_text(one.others_busy_s)} at most)"
        small = f"; it computes {percent_text(one.parts['compute'] / one.step_s)} of it: the batch is too small" if one.too_small else ""
        return f"{what} while the host dispatches {one.launches:,.0f} launches{small}"
    began = "parts of the model work one after another" if one.shared_model else "replicas begin apart"
    return {
        "input": f"it waits {took} {of} for its batch",
        "host_work": f"the {word} idles {took} {of} while the host gathers, merges or updates",
        "skew": f"{began} for up to {took} {of} (launch skew)",
        "communication": f"{took} {of} are exposed communication",
        "peer_copies": f"{took} {of} are exposed copies between {device_words(one.row['device_type'])}",
        "host_copies": f"{took} {of} are exposed copies to and from the host",
    }[part]


def _known(one: Explanation, base: Baseline) -> str:
    """Without a trace: how much of what is lost is lost on one device already."""
    same = one.baselines.get("one_same")
    if same is None or same.row["keys"] in (one.row["keys"], base.row["keys"]):
        return ""
    alone, whole = same.ideal_step_s - base.ideal_step_s, one.step_s - base.ideal_step_s
    word = device_word(one.row["device_type"])
    return f" ({ms_text(alone)} of {ms_text(whole)} a step are lost by the same placement on one {word} already)" if whole > 0 else ""


def _largest(one: Explanation) -> str:
    if one.parts is None:
        return "where its step's time goes was not measured, since no Run of this point was traced"
    part = max(WAITS, key=lambda name: one.parts[name] if one.parts else 0.0)
    return f"of its waits the largest: {_phrase(one, part, None, f'of a step of {ms_text(one.step_s)}')}"
