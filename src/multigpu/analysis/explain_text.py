"""An explanation for a terminal and for a program: the answer in two or three sentences, the rest
on demand.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multigpu.analysis.advise_text import point_dict
from multigpu.analysis.estimate import Estimate, estimate
from multigpu.analysis.expected import expected
from multigpu.analysis.explain import WAITS, Explanation, explain_words
from multigpu.analysis.query import command_of, semantics
from multigpu.analysis.read import Study
from multigpu.analysis.templates import macros_of
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
from multigpu.spec.tables import table

ROWS = table(Path(__file__).with_name("explain_names.csv"))
NAMES = {row["name"]: row["words"] for row in ROWS if row["of"] == "baseline"}
PART_NAMES = {row["name"]: row["words"] for row in ROWS if row["of"] == "part"}

said = macros_of(
    "multigpu.analysis",
    "explain.j2",
    **{word.__name__: word for word in (estimate, Estimate, joined, plural)},
    **{word.__name__: word for word in (way_words, job_words, repeats_words)},
    names=NAMES,
    part_names=PART_NAMES,
)


def sentences(one: Explanation) -> list[str]:
    """The answer: how it compares, why, and what was faster."""
    row, base = one.row, one.base
    device = device_word(row["device_type"])
    devices = devices_text(*row[["devices", "device_type"]])
    best = None if one.faster.empty else one.faster.iloc[0]
    causes = [] if one.parts is None else one.causes()[:2]
    longest = [f"{Estimate(seconds):ms} {PART_NAMES[name]}" for name, seconds in causes]
    longer_s = (one.parts or {"compute": 0.0})["compute"] - (one.alone_s or math.inf)
    return [
        said("beside_one", one=one, row=row, base=base, device=device, devices=devices),
        said("why", one=one, row=row, base=base, device=device, causes=longest, longer_s=longer_s),
        said("faster", row=row, best=best, change="" if best is None else changes(row, best)),
    ]


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
    return said(
        "text",
        one=one,
        row=row,
        answer=sentences(one),
        details=details,
        others={name: base for name, base in one.baselines.items() if base["keys"] != row["keys"]},
        parts=() if one.parts is None else ("compute", *WAITS),
        least=[f"{name} {Estimate(seconds):ms}" for name, seconds in one.bounds_s.items()],
        changed=[(changes(row, best), best) for _, best in one.faster.iterrows()],
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
        points = [as_dict(one) for one in found]
        answer = {"points": points, "note": none, "forecast": ahead and ahead.as_dict()}
        return json.dumps(answer, indent=1)
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
