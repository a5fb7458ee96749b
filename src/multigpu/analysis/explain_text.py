"""An explanation for a terminal and for a program: the answer in two or three sentences, the rest
on demand.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from multigpu.analysis.advise_text import point_dict
from multigpu.analysis.estimate import Estimate, estimate
from multigpu.analysis.expected import expected
from multigpu.analysis.explain import WAITS, Explanation, explain_words
from multigpu.analysis.query import command_of, semantics
from multigpu.analysis.read import Study
from multigpu.analysis.words import (
    device_word,
    devices_text,
    job_words,
    joined,
    missing,
    number,
    plural,
    repeats_words,
    way_words,
)
from multigpu.spec.parse import parse_fields

NAMES = {
    "one_best": "one device at its best",
    "one_same": "the same placement on one device",
    "independent": "independent replicas",
    "kept": "the same with batches kept on the device",
}

PART_NAMES = {
    "compute": "the device computes",
    "input": "waiting for its batch",
    "launching": "idle while the host launches kernels",
    "host_work": "idle while the host gathers, reduces or updates",
    "skew": "idle because replicas began apart",
    "communication": "waiting for communication",
    "peer_copies": "waiting for copies between devices",
    "host_copies": "waiting for copies to and from the host",
}


def sentences(one: Explanation) -> list[str]:
    """The answer: how it compares, why, and what was faster."""
    return [_beside_one(one), _why(one), _faster(one)]


def _beside_one(one: Explanation) -> str:
    row, base = one.row, one.base
    device = device_word(row["device_type"])
    devices = devices_text(row["devices"], row["device_type"])
    if base is not None and base["devices"] > 1:
        if one.lost:
            kept = f"{estimate(base, 'ratio'):percent interval} of the rate"
        else:
            kept = "the rate, as far as repeats tell,"
        if "one_best" in one.baselines:
            alone = f"one {device} was measured in slower ways only"
        else:
            alone = f"no {device} alone was measured with these kernels"
        return f"{devices} keep {kept} of independent replicas; {alone}."
    if base is None:
        return (
            f"This job was not measured on one {device}, so what is lost against it is not known."
        )
    if base["keys"] == row["keys"]:
        return f"This is the best way measured on one {device}."
    times, share = estimate(base, "ratio"), estimate(base, "of_ideal")
    if row["devices"] == 1 and one.lost:
        return f"One {device} reaches {share:percent interval} of its best way ({way_words(base)})."
    if row["devices"] == 1:
        return f"One {device} is not told apart from its best way ({way_words(base)})."
    high, low = (times.high, times.low) if times.known else (times.value, times.value)
    if high < 1:
        return (
            f"{devices} are slower than one: {times:times interval} times the rate of one {device}"
            f" at its best ({way_words(base)})."
        )
    if low <= 1:
        return (
            f"{devices} are not told apart from one {device} at its best ({way_words(base)}):"
            f" {times:times interval} times its rate."
        )
    if one.lost:
        kept = f"{share:percent interval} of perfect scaling"
    else:
        kept = "which repeats do not tell from perfect scaling"
    return (
        f"{devices} reach {times:times interval} times the rate of one {device} at its best"
        f" ({way_words(base)}), {kept}."
    )


def _why(one: Explanation) -> str:
    base, device, step = one.base, device_word(one.row["device_type"]), Estimate(one.step_s)
    if base is not None and base["keys"] != one.row["keys"] and not one.lost:
        return "Nothing here needs a cause."
    if one.parts is None:
        return f"Where its step's time goes was not measured; this does: {one.trace}"
    causes = [f"{Estimate(seconds):ms} {PART_NAMES[name]}" for name, seconds in one.causes()[:2]]
    if causes:
        return f"Of a step of {step:ms} each {device} spends {joined(causes)}."
    longer_s = one.parts["compute"] - (one.alone_s or math.inf)
    if longer_s >= 0.02 * one.step_s:
        return (
            f"There is no long wait: computing takes {Estimate(longer_s):ms} longer than in"
            " replicas that reduce no gradients beside it."
        )
    return (
        f"The step has no long wait: the {device} computes {Estimate(one.parts['compute']):ms} of"
        f" {step:ms}."
    )


def _faster(one: Explanation) -> str:
    if one.faster.empty:
        return "Nothing measured of this job on as many devices is faster."
    best = one.faster.iloc[0]
    change, ratio = changes(one.row, best), estimate(best, "ratio")
    return (
        f"Measured to be faster: {change}, {ratio:times interval} times its rate"
        f" ({repeats_words(best)})."
    )


def changes(row: Any, other: Any) -> str:
    """In what another way differs: "execution captured instead of eager"."""
    now, then = (
        {name: "unset" if missing(point[name]) else point[name] for name in other["changed"]}
        for point in (other, row)
    )
    training = semantics(other).facts.words
    return joined([f"{name} {now[name]} instead of {then[name]}" for name in now]) + (
        f" ({training})" if training else ""
    )


def as_text(one: Explanation, details: bool = False) -> str:
    """The explanation for a terminal; with its details on demand."""
    row = one.row
    lines = [
        *sentences(one),
        "",
        f"{way_words(row)}; {job_words(row)}; measured on {row['machine']}",
    ]
    lines.append(
        f"{estimate(row, 'rate'):rate interval}, {repeats_words(row)}; a step takes"
        f" {Estimate(one.step_s):ms}"
    )
    if not details:
        return "\n".join(
            [
                *lines,
                (
                    "--details: what it is compared with, the step's parts, its bounds, other"
                    " faster ways"
                ),
            ]
        )
    lines += [
        "",
        *(
            _against(one, name, base)
            for name, base in one.baselines.items()
            if base["keys"] != row["keys"]
        ),
    ]
    if one.parts is not None:
        lines += [
            "",
            (
                f"one step by part, from {plural(len(one.traces), 'traced Run')}"
                f" ({one.launches:,.0f} launches):"
            ),
        ]
        lines += [
            f"  {PART_NAMES[name]:<48}{1e3 * one.parts[name]:>9.2f} ms"
            for name in ("compute", *WAITS)
        ]
    least = [f"{name} {Estimate(seconds):ms}" for name, seconds in one.bounds_s.items()]
    lines += [
        "",
        (
            "at least, each by itself:"
            f" {joined(least) if least else 'no ceiling of this machine is known'}"
        ),
    ]
    lines += [
        f"faster: {changes(row, best)}, {estimate(best, 'ratio'):times interval} times"
        for _, best in one.faster.iterrows()
    ]
    return "\n".join(lines)


def _against(one: Explanation, name: str, base: pd.Series) -> str:
    ratio, ideal = estimate(base, "ratio"), estimate(base, "of_ideal")
    if (ideal.high if ideal.known else ideal.value) < 1:
        whole = f"{ideal:percent} of"
    else:
        whole = "no less than"
    if name.startswith("one_") and one.row["devices"] > 1:
        share = f", {whole} {one.row['devices']} times"
    else:
        share = ""
    return (
        f"{NAMES[name]} ({way_words(base)}): {estimate(base, 'rate'):rate}; this point is"
        f" {ratio:times interval} times it{share}"
    )


def as_dict(one: Explanation) -> dict[str, Any]:
    """The explanation for a program: units in names, null for what was not measured."""
    figures = ("ratio", "ratio_low", "ratio_high", "of_ideal")
    return {
        "answer": " ".join(sentences(one)),
        "point": point_dict(one.row),
        "semantics": semantics(one.row).kind,
        "baselines": {
            name: {field: number(base[field]) for field in figures} | {"point": point_dict(base)}
            for name, base in one.baselines.items()
        },
        "parts_s": one.parts,
        "traces": list(one.traces),
        "bounds_s": {name: value for name, value in one.bounds_s.items() if math.isfinite(value)},
        "faster": [
            {"changed": list(row["changed"])}
            | {field: number(row[field]) for field in figures[:3]}
            | {"point": point_dict(row)}
            for _, row in one.faster.iterrows()
        ],
        "trace_command": one.trace or None,
    }


def explained(
    study: Study,
    words: Sequence[str],
    machine: str | None = None,
    most: int = 1,
    form: str = "text",
    details: bool = False,
) -> str:
    """The answer of `explain`, as text or JSON, to a key or to fields of a Run.

    Raises:
        ValueError: the words are neither.
    """
    if most < 1:
        raise ValueError(f"--limit {most}: at least 1 point is needed")
    found, none, left = explain_words(study, words, machine, most)
    if found or not any("=" in word for word in words):
        ahead = None
    else:
        ahead = expected(study, parse_fields(words), machine)
    if none.startswith("No Record") and not ahead:
        none += f" This measures one: `{command_of(parse_fields(words))}`"
    if form == "json":
        return json.dumps(
            {
                "points": [as_dict(one) for one in found],
                "note": none,
                "forecast": ahead and ahead.as_dict(),
            },
            indent=1,
        )
    others = [
        f"  {str(row['keys']).split(', ')[0]}  {way_words(row)}; {job_words(row)}"
        for _, row in left.head(8).iterrows()
    ]
    if others:
        more = [
            f"{plural(len(left), 'further point')} of these fields; name more of them, or a key:",
            *others,
        ]
    else:
        more = []
    told = [
        *(as_text(one, details) for one in found),
        none,
        ahead.text() if ahead else "",
        "\n".join(more),
    ]
    return "\n\n".join(filter(None, told))
