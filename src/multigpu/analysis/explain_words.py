"""An explanation (`explain.Explanation`) in words: a verdict of one sentence, what it rests on, what was not measured; and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pandas as pd

from multigpu.analysis.asked import job_words, repeats_words, semantics, semantics_words, way_words
from multigpu.analysis.explain import Explanation
from multigpu.analysis.explain_parts import STEP_PARTS
from multigpu.analysis.explain_verdict import ms_text, verdict
from multigpu.analysis.helped import Helped
from multigpu.analysis.metrics import POINT
from multigpu.analysis.wording import device_word, joined, missing, percent_text, plural, rate_text, ratio_text

ONE_BEST, ONE_SAME = "one device at its best", "the same placement on one device"
NAMES = {"one_best": ONE_BEST, "one_same": ONE_SAME, "independent": "independent replicas", "kept": "the same, batches kept on the device"}


def not_measured(one: Explanation) -> list[str]:
    """What would belong to the answer and was not measured."""
    lacks = []
    if one.parts is None:
        causes = "dispatch by the host, launch skew, exposed communication, copies, slower computation, whether the batch is too small"
        lacks.append((causes if math.isfinite(one.wait_s) else f"waiting for batches, {causes}") + f": {one.command}")
    elif math.isnan(one.wait_s):
        lacks.append("waiting for batches: this input's waits were not recorded, and stand in the host's launches")
    word = device_word(one.row["device_type"])
    if "one_best" not in one.baselines:
        lacks.append(f"one {word} at its best: this job was not measured on one")
    if one.alone:
        lacks.append(f"the same placement on one {word}: {one.alone}")
    if one.parts is not None and one.baselines.get("one_best") and one.baselines["one_best"].parts is None:
        lacks.append(f"how one {word} at its best spends its step: waits above are at most, computation at least, what they add to it")
    return lacks


def as_text(one: Explanation) -> str:
    """The explanation for a terminal."""
    row, lines = one.row, [verdict(one), ""]
    rate = rate_text(row["rate"], row["rate_low"], row["rate_high"], row["unit"])
    lines.append(f"point         {way_words(row)}; {job_words(row)}; {row['scaling']} scaling; machine {one.machine}")
    memory = "" if missing(row["peak_memory_gib"]) else f"; at most {row['peak_memory_gib']:.1f} GiB of a device's memory"
    lines.append(f"rate          {rate}, {repeats_words(row)}; a step takes {ms_text(one.step_s)}{memory}")
    if semantics(row).kind != "joined":
        lines.append(f"semantics     {semantics_words(semantics(row))}")
    lines += [f"against       {line}" for line in _against(one)]
    if one.parts is None and one.wait_s > 0:
        lines.append(f"input         a step waits {ms_text(one.wait_s)} for its batch, {percent_text(one.wait_s / one.step_s)} of it")
    if one.parts is not None:
        lines += ["", *_table(one)]
    lines += ["", f"bounds        {_bounds_text(one)}"]
    lines += [f"not measured  {text}" for text in not_measured(one)]
    for point, times in one.larger:
        on = f"{ratio_text(times)} this rate, {repeats_words(point)}, Record {str(point['keys']).split(', ')[0]}"
        lines.append(f"larger batch  {point['batch_size']}: {on} (another job: it changes what is trained)")
    lines += [f"was faster    {help_words(row, better)}" for better in one.helped] or [
        "was faster    nothing that was measured of the same job on as many devices"
    ]
    return "\n".join(lines)


def _against(one: Explanation) -> list[str]:
    lines = []
    for name, base in one.baselines.items():
        if base.row["keys"] == one.row["keys"]:
            continue
        devices = int(one.row["devices"])
        share = f"; {percent_text(base.of_ideal)} of {devices} times" if name.startswith("one_") and devices > 1 else ""
        rate = rate_text(base.row["rate"], unit=base.row["unit"])
        times = ratio_text(base.ratio, base.low, base.high)
        ideal = f"; at that a step would take {ms_text(base.ideal_step_s)}, so {ms_text(one.step_s - base.ideal_step_s)} are lost"
        lines.append(f"{NAMES[name]} ({way_words(base.row)}): {rate}, {repeats_words(base.row)}: {times} it{share}{ideal}")
    return lines


def _table(one: Explanation) -> list[str]:
    assert one.parts is not None
    named = {"one_best": "one, best", "one_same": "one, same", "kept": "kept"}
    found = [(one.baselines[name], label) for name, label in named.items() if name in one.baselines]
    bases = [(base, label) for base, label in found if base.parts and base.row["keys"] != one.row["keys"]]
    heads = "".join(f"  {label:>12}" for _, label in bases)
    lines = [f"{'a step, from ' + _traces_text(one):<46}{'ms':>8}{'share':>8}{heads}"]
    for name, label in STEP_PARTS.items():
        value = math.nan if name == "input" and math.isnan(one.wait_s) else one.parts[name]
        own = f"{'–':>8}{'–':>8}" if missing(value) else f"{1e3 * value:>8.2f}{100 * value / one.step_s:>7.1f}%"
        cells = "".join(f"  {1e3 * base.parts[name]:>12.2f}" for base, _ in bases if base.parts)
        lines.append(f"  {label:<44}{own}{cells}")
    traced = f"{plural(len(one.traces), 'traced Run')} (screening)"
    lines.append(
        f"  {traced}, whose step takes {ms_text(one.traced_step_s)} untraced: the device's parts are theirs, the host's share the rest"
    )
    return lines


def _traces_text(one: Explanation) -> str:
    return f"trace {one.traces[0]}" if len(one.traces) == 1 else f"{len(one.traces)} traces"


def _bounds_text(one: Explanation) -> str:
    """What the ceilings alone say: the least times, and what they leave open where nothing was traced."""
    known = {"arithmetic": one.bounds.arithmetic_s, "memory": one.bounds.memory_s, "traffic": one.bounds.traffic_s}
    parts = [f"{name} {ms_text(value)}" for name, value in known.items() if math.isfinite(value)]
    if not parts:
        return "no ceiling of this machine is known"
    text = f"at the ceilings' rates a step takes at least, each by itself: {joined(parts)}"
    if one.parts is None:
        rest = one.step_s - max(value for value in known.values() if math.isfinite(value))
        if rest > 0:
            text += f"; {ms_text(rest)} of the step are beyond the longest: waits or slower kernels, not told apart without a trace"
    return text


def help_words(row: Any, better: Helped) -> str:
    """What was changed, what it gave ("execution captured instead of eager: 1.90 times ..."), its Record, and what else it changes."""
    changes = [f"{name} {_value(better.row[name])} instead of {_value(row[name])}" for name in better.changed]
    kind = semantics(better.row)
    other = f"; {semantics_words(kind)}" if kind.kind != "joined" else ""
    once = " (one side measured once: no interval)" if missing(better.low) else ""
    times = ratio_text(better.times, better.low, better.high)
    return f"{joined(changes)}: {times}{once}, {repeats_words(better.row)}, Record {better.key}{other}"


def _value(value: Any) -> str:
    return "unset" if missing(value) else str(value)


def number(value: Any) -> Any:
    """A value as JSON takes it: numpy's as Python's own, what is missing as null."""
    if missing(value) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value.item() if hasattr(value, "item") else value


def point_dict(row: pd.Series) -> dict[str, Any]:
    """A point's fields and figures, with the keys of its Records."""
    fields = {name: number(row[name]) for name in POINT}
    figures = ("n", "launches", "rate", "rate_low", "rate_high", "step_time_s", "peak_memory_gib")
    return fields | {name: number(row[name]) for name in figures} | {"keys": str(row["keys"]).split(", ")}


def as_dict(one: Explanation) -> dict[str, Any]:
    """The explanation for a program: names as in the docstrings, units in names, null for what was not measured."""
    added = one.added()
    parts = None
    if one.parts is not None:
        parts = {
            name: {
                "seconds": number(math.nan if name == "input" and math.isnan(one.wait_s) else one.parts[name]),
                "share": one.parts[name] / one.step_s,
                "added_s": None if added is None else added[name],
            }
            for name in STEP_PARTS
        }
    return {
        "verdict": verdict(one),
        "point": point_dict(one.row),
        "semantics": semantics(one.row).kind,
        "baselines": {
            name: {
                **{field: number(getattr(base, field)) for field in ("ratio", "low", "high", "of_ideal", "ideal_step_s")},
                "differs": list(base.differs),
                "parts_s": base.parts,
                "point": point_dict(base.row),
            }
            for name, base in one.baselines.items()
        },
        "compared_with": one.base or None,
        "traces": list(one.traces),
        "parts": parts,
        "input_wait_s": number(one.wait_s),
        "batch_too_small": one.too_small,
        "larger_batches": [{"times": times, "point": point_dict(point)} for point, times in one.larger],
        "bounds": {name: number(value) for name, value in asdict(one.bounds).items()},
        "not_measured": not_measured(one),
        "commands": {"trace": one.command or None, "one_same": one.alone or None},
        "was_faster": [
            {"changed": list(h.changed), "times": h.times, "low": number(h.low), "high": number(h.high), "point": point_dict(h.row)}
            for h in one.helped
        ],
    }
