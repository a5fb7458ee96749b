"""What `python -m multigpu advise` says, as text or JSON."""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pandas as pd

from multigpu.analysis.advise import Advice, rankings
from multigpu.analysis.compare import EQUAL
from multigpu.analysis.estimate import Estimate, estimate
from multigpu.analysis.expected import DEFAULTS, expected
from multigpu.analysis.fields import POINT
from multigpu.analysis.limits import mfu_of
from multigpu.analysis.memory import room_for
from multigpu.analysis.points import where
from multigpu.analysis.query import command_of, measure_command, run_of
from multigpu.analysis.read import Study
from multigpu.analysis.show import aligned
from multigpu.analysis.templates import macros_of
from multigpu.analysis.words import (
    device_word,
    devices_text,
    job_words,
    joined,
    missing,
    number,
    repeats_words,
    way_words,
)
from multigpu.build import build_run
from multigpu.workloads import workloads

said = macros_of(
    "multigpu.analysis", "advise.j2", estimate=estimate, way=way_words, repeats=repeats_words
)


def sentences(advice: Advice) -> list[str]:
    """The advice, what it gains, what is as good, and what to repeat."""
    best, ranked = advice.best, advice.ranked
    if best is None:
        return said("nothing").splitlines()
    equal = [f"“{way_words(row)}”" for _, row in where(ranked, standing=EQUAL).iterrows()]
    more = [f"{len(equal) - 3} more"] if len(equal) > 3 else []
    once = where(ranked, standing="faster, single run")
    return said(
        "sentences",
        advice=advice,
        best=best,
        over=advice.over_single,
        device=device_word(best["device_type"]),
        devices=devices_text(best["devices"], best["device_type"]),
        equal=joined([*equal[:3], *more]),
        once=once.iloc[0] if len(once) else None,
    ).splitlines()


def as_text(advice: Advice) -> str:
    """A ranking for a terminal."""
    first = advice.ranked.iloc[0]
    shown = advice.ranked.assign(
        way=[way_words(row) for _, row in advice.ranked.iterrows()],
        rate_=[f"{estimate(row, 'rate'):rate interval}" for _, row in advice.ranked.iterrows()],
        share=["–" if missing(value) else f"{value:.0%}" for value in advice.ranked["of_best"]],
        gib=[
            "–" if missing(value) else f"{value:.1f}" for value in advice.ranked["peak_memory_gib"]
        ],
        said=["" if value == "slower" else value for value in advice.ranked["standing"]],
    )
    heads = {
        "way": "placement and way",
        "rate_": "rate (95%)",
        "share": "of best",
        "n": "n",
        "gib": "GiB",
        "said": "",
    }
    cells = [list(heads.values()), *shown[list(heads)].astype(str).to_numpy().tolist()]
    lines = [
        *sentences(advice),
        "",
        f"{job_words(first)}; {first['scaling']} scaling; measured on {first['machine']}",
        "",
    ]
    lines += aligned(cells)
    others = {
        kind: training
        for kind, training in zip(advice.ranked["kind"], advice.ranked["training"], strict=True)
        if training
    }
    lines += ["", *(f"{kind}: {training}" for kind, training in others.items())] if others else []
    lines += [f"repeat: {command}"] if (command := again(advice)) else []
    failed = [
        f"{way_words(row)}: {str(row['status']).replace('_', ' ')}: {row['reason']}"
        for _, row in advice.failed.iterrows()
    ]
    return "\n".join([*lines, *(["", "tried and not measured:", *failed] if failed else [])])


def again(advice: Advice) -> str:
    """The command that repeats a single run that was faster; "" without one."""
    once = (
        where(advice.ranked, standing="faster, single run") if len(advice.ranked) else advice.ranked
    )
    return measure_command(run_of(once.iloc[0])) + " --repeats 5" if len(once) else ""


def point_dict(row: pd.Series) -> dict[str, Any]:
    """A point's fields and figures, with the keys of its Records."""
    figures = ("n", "launches", "rate", "rate_low", "rate_high", "step_time_s", "peak_memory_gib")
    return {name: number(row[name]) for name in (*POINT, *figures)} | {
        "mfu": number(mfu_of(row)),
        "keys": str(row["keys"]).split(", "),
    }


def as_dict(advice: Advice) -> dict[str, Any]:
    """A ranking for a program; null for what was not measured."""
    own, over = ("kind", "standing", "of_best"), advice.over_single or Estimate(math.nan)
    return {
        "advice": " ".join(sentences(advice)),
        "machine": advice.ranked.iloc[0]["machine"],
        "ranked": [
            {name: number(row[name]) for name in own}
            | {"way": way_words(row), "point": point_dict(row)}
            for _, row in advice.ranked.iterrows()
        ],
        "one_best": None if advice.single is None else point_dict(advice.single),
        "replicas": None if advice.replicas is None else point_dict(advice.replicas),
        "over_one_best": {
            "ratio": number(over.value),
            "_low": number(over.low),
            "_high": number(over.high),
        },
        "repeat": again(advice) or None,
        "failed": [
            {"way": way_words(row), "status": row["status"], "reason": row["reason"]}
            for _, row in advice.failed.iterrows()
        ],
    }


def advised(
    study: Study,
    fields: Mapping[str, Any],
    machine: str | None = None,
    most: int = 2,
    form: str = "text",
) -> str:
    """The answer of `python -m multigpu advise`, as text or JSON. ValueError: no workload, an
    unknown value or machine, a limit below 1.
    """
    if most < 1:
        raise ValueError(f"--limit {most}: at least 1 job is needed")
    if "workload" not in fields:
        raise ValueError(
            f"which job is meant? name workload={'|'.join(workloads())}, and more fields of a Run"
            " if wanted"
        )
    found, rest = rankings(study.everywhere, fields, machine, most)
    ahead = None if found else expected(study, fields, machine)
    if not found and not ahead:
        rest += f" This measures one: `{command_of(fields)}`"
    short = [
        row
        for one in found
        for _, row in where(one.failed, status="out_of_memory").head(1).iterrows()
    ]
    planned = [ahead.run] if ahead else []
    if not found and not ahead and "model" in fields:
        with suppress(ValueError):  # such a Run cannot be
            planned = [build_run(**{**DEFAULTS, **fields})]
    rooms = [room_for(study, run, machine) for run in (*map(run_of, short), *planned)]
    memory = [room.text() for room in rooms if room]
    if form == "json":
        return json.dumps(
            {
                "jobs": [as_dict(one) for one in found],
                "note": rest,
                "forecast": ahead and ahead.as_dict(),
                "memory": memory,
            },
            indent=1,
        )
    return "\n\n".join(
        filter(
            None, [*(as_text(one) for one in found), rest, ahead.text() if ahead else "", *memory]
        )
    )
