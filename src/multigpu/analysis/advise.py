"""Which placement to take for a job: every one that was measured, in every way of carrying it out, ranked, with what it is sure of."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from multigpu.analysis.asked import (
    CONDITIONS,
    PINNED,
    check_asked,
    job_words,
    measure_command,
    most_repeated,
    none_has,
    of_machine,
    repeats_words,
    semantics,
    semantics_words,
    way_words,
)
from multigpu.analysis.choose import overlaps
from multigpu.analysis.explain_parts import best_single
from multigpu.analysis.explain_words import number, point_dict
from multigpu.analysis.frame import frame_of
from multigpu.analysis.helped import ONCE_MARGIN
from multigpu.analysis.metrics import JOB, summary
from multigpu.analysis.ways import ratio_of
from multigpu.analysis.wording import device_word, devices_text, joined, missing, percent_text, plural, rate_text, ratio_text
from multigpu.reading import as_read, of_todays_programs
from multigpu.record import Record, RecordStore
from multigpu.run import Run
from multigpu.workloads import workloads

ADVISED = (*JOB, "scaling", "devices", *CONDITIONS)
"""What all placements of one ranking have in common."""

STANDING = {"best": "best", "equal": "not told apart", "slower": "", "once": "faster, measured once", "other": "not the same training"}
"""Of each standing: how the table says it."""

EQUAL_IN_RESULT = ("joined", "lossy")
"""Semantics of placements that train the model of the joined batch, exactly or within a stated tolerance."""


LISTED = 8
"""Most jobs that are named without being ranked."""


@dataclass(frozen=True, eq=False)
class Advice:
    """A ranking. ranked: points, the fastest first, with `standing` (of `STANDING`) and of_best (rate over the best one's).

    best: the row to take; None where none trains the joined batch's model. single: one device at its best, of the same job, and over_single
    the best's rate over it, with interval; None where it was not measured, or is the best. again: the command that repeats what was
    measured once and was faster; "" without such a point. failed: points that were tried and not measured.
    """

    ranked: pd.DataFrame
    best: pd.Series | None
    single: pd.Series | None
    over_single: tuple[float, float, float]
    again: str
    failed: pd.DataFrame


def advise(frame: pd.DataFrame, points: pd.DataFrame, runs: Mapping[str, Run]) -> Advice:
    """The ranking of one job's points (of `summary`).

    The best is the fastest point with an interval that trains the joined batch's model; where none was measured twice, the fastest.
    Not told apart from it: points of such semantics whose interval overlaps its own (`choose.overlaps`), and those measured once whose rate
    is within `helped.ONCE_MARGIN` of its rate. What was measured once and faster than that is said to be so.

    Args:
        frame: of the machine, in which one device at its best is looked for. points: of the job.
        runs: by Record's key, for the command that repeats one.
    """
    ok = points[points["n"] > 0].sort_values("rate", ascending=False, kind="stable")
    kinds = [semantics(row).kind for _, row in ok.iterrows()]
    same = ok[[kind in EQUAL_IN_RESULT for kind in kinds]]
    known = same[same["rate_low"].notna()]
    chosen = known if len(known) else same
    best = chosen.iloc[0] if len(chosen) else None
    standing = [_standing(row, kind, best) for (_, row), kind in zip(ok.iterrows(), kinds, strict=True)]
    of_best = ok["rate"] / (math.nan if best is None else best["rate"])
    ranked = ok.assign(semantics=kinds, standing=standing, of_best=of_best).reset_index(drop=True)
    once = ranked[ranked["standing"] == "once"]
    run = runs.get(str(once.iloc[0]["keys"]).split(", ")[0]) if len(once) else None
    again = "" if run is None else measure_command(run) + " --repeats 5"
    single = None if best is None or best["devices"] == 1 else best_single(summary(frame), best)
    over, (low, high) = ratio_of(frame, best, single)
    return Advice(ranked, best, single, (over, low, high), again, points[points["n"] == 0])


def _standing(row: Any, kind: str, best: Any | None) -> str:
    if kind not in EQUAL_IN_RESULT or best is None:
        return "other"
    if row["keys"] == best["keys"]:
        return "best"
    if missing(row["rate_low"]):
        times = row["rate"] / best["rate"]
        return "once" if times >= ONCE_MARGIN else "equal" if times > 1 / ONCE_MARGIN else "slower"
    return "equal" if overlaps(best, row) else "slower"


def sentence(advice: Advice) -> str:
    """The advice in one sentence."""
    best, ranked = advice.best, advice.ranked
    if best is None:
        return "None of what was measured trains one model on the joined batch, so nothing can be advised."
    many, rate = (
        devices_text(best["devices"], best["device_type"]),
        rate_text(best["rate"], best["rate_low"], best["rate_high"], best["unit"]),
    )
    single, (over, low, high) = advice.single, advice.over_single
    text, reached = f"On {many} take", ""
    if single is not None and (over if missing(high) else high) < 1:
        alone = rate_text(single["rate"], single["rate_low"], single["rate_high"], single["unit"])
        text = f"Take one {device_word(single['device_type'])} ({way_words(single)}: {alone}); fastest on {many} was"
        reached = f", {ratio_text(over, low, high)} that"
    text += f" {way_words(best)}: {rate}, {repeats_words(best)}{reached}"
    if semantics(best).kind != "joined":
        text += f"; it {semantics_words(semantics(best))}"
    equal = [f"“{way_words(row)}”" for _, row in ranked[ranked["standing"] == "equal"].iterrows()]
    if equal:
        named = equal[:3] + ([plural(len(equal) - 3, "other")] if len(equal) > 3 else [])
        text += f"; intervals (measured once: {ONCE_MARGIN - 1:.0%}) do not tell {joined(named)} from it"
    if len(ranked) == 1:
        text += "; nothing else was measured of this job on as many"
    if single is not None and not reached:
        text += _over_single(single, best, over, low, high)
    once = ranked[ranked["standing"] == "once"]
    if len(once):
        text += f"; “{way_words(once.iloc[0])}” was {once.iloc[0]['of_best']:.2f} times as fast, measured once: repeat it before taking it"
    return text + "."


def _over_single(single: Any, best: Any, over: float, low: float, high: float) -> str:
    """What devices that are not slower gain over one at its best."""
    word, times = device_word(single["device_type"]), ratio_text(over, low, high)
    once = missing(low)
    if not once and low <= 1:
        return f"; but it is not told apart from one {word} alone ({way_words(single)}), {times} it"
    return f"; {times} one {word} at its best{' (one side measured once)' if once and single['n'] + best['n'] > 2 else ''}"


def rankings(records: list[Record], fields: Mapping[str, Any], machine: str | None = None, most: int = 2) -> tuple[list[Advice], str]:
    """A ranking a job of these fields, `most` at most, and in words what was left out or is not there.

    Where no number of devices is named: the most devices of each model. Jobs with most placements come first. Runs that are pinned to
    cores or GPUs or watched by a counter count only where such a field is named.

    Raises:
        ValueError: as `asked.check_asked` and `asked.of_machine`.
    """
    check_asked(fields)
    frame = of_machine(frame_of(records), fields.get("workload"), machine)
    rows = frame
    for name, value in fields.items():
        rows = rows[rows[name].eq(value).fillna(False)]
    for name in PINNED:
        rows = rows if name in fields else rows[rows[name].isna()]
    if rows.empty:
        return [], none_has(frame, fields, machine)
    points = most_repeated(summary(rows))
    if "devices" not in fields:
        points = points[points["devices"] == points.groupby("model")["devices"].transform("max")]
    groups = [group for _, group in points.groupby(list(ADVISED), dropna=False, sort=False) if group["n"].gt(0).any()]
    groups.sort(key=lambda group: (-len(group), -int(group["n"].sum())))
    runs = {record.key: record.run for record in records}
    left = [f"  {job_words(group.iloc[0])}: {plural(len(group), 'way')} measured" for group in groups[most:]]
    shown = left[:LISTED]
    head = f"{plural(len(left), 'further job')} of these fields{'' if len(left) <= LISTED else f', {LISTED} of them'}; name more fields:"
    return [advise(frame, group, runs) for group in groups[:most]], "\n".join([head, *shown]) if left else ""


def as_text(advice: Advice) -> str:
    """A ranking for a terminal."""
    ranked = advice.ranked
    lines = [
        sentence(advice),
        "",
        f"job      {job_words(ranked.iloc[0])}; {ranked.iloc[0]['scaling']} scaling; {ranked.iloc[0]['machine']}",
        "",
    ]
    cells = [
        (
            way_words(row),
            rate_text(row["rate"], row["rate_low"], row["rate_high"], row["unit"]),
            "–" if missing(row["of_best"]) else percent_text(row["of_best"]),
            f"{row['n']}",
            "–" if missing(row["peak_memory_gib"]) else f"{row['peak_memory_gib']:.1f}",
            STANDING[row["standing"]],
        )
        for _, row in ranked.iterrows()
    ]
    heads = ("placement and way", "rate (95%)", "of best", "n", "GiB", "")
    widths = [max(len(row[index]) for row in (heads, *cells)) for index in range(len(heads))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (heads, *cells)]
    other = ranked[~ranked["semantics"].eq("joined")]
    lines += ["", *(f"{way_words(row)}: {semantics_words(semantics(row))}" for _, row in other.iterrows())] if len(other) else []
    if advice.again:
        lines += ["", f"repeat   {advice.again}"]
    failed = [f"{way_words(row)}: {str(row['status']).replace('_', ' ')}: {row['reason']}" for _, row in advice.failed.iterrows()]
    return "\n".join([*lines, *(["", "tried and not measured:", *failed] if failed else [])])


def as_dict(advice: Advice) -> dict[str, Any]:
    """A ranking for a program; null for what was not measured."""
    own = ("semantics", "standing", "of_best")
    return {
        "advice": sentence(advice),
        "ranked": [
            {name: number(row[name]) for name in own} | {"way": way_words(row), "point": point_dict(row)}
            for _, row in advice.ranked.iterrows()
        ],
        "one_best": None if advice.single is None else point_dict(advice.single),
        "over_one_best": dict(zip(("ratio", "low", "high"), map(number, advice.over_single), strict=True)),
        "repeat": advice.again or None,
        "failed": [{"way": way_words(row), "status": row["status"], "reason": row["reason"]} for _, row in advice.failed.iterrows()],
    }


def advised(store: RecordStore, fields: Mapping[str, Any], machine: str | None = None, most: int = 2, form: str = "text") -> str:
    """The answer of `python -m multigpu advise`, as text or JSON.

    Raises:
        ValueError: no workload is named, an unknown value, a machine without Records, or a limit below 1.
    """
    if most < 1:
        raise ValueError(f"--limit {most}: at least 1 job is needed")
    if "workload" not in fields:
        raise ValueError(f"which job is meant? name workload={'|'.join(workloads())}, and more fields of a Run if wanted")
    found, rest = rankings(as_read(of_todays_programs(store)), fields, machine, most)
    if form == "json":
        return json.dumps({"jobs": [as_dict(one) for one in found], "note": rest}, indent=1)
    return "\n\n".join(filter(None, [*(as_text(one) for one in found), rest]))
