"""Which placement to take for a job: every one that was measured on one machine, in every way of
carrying it out, ranked.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.compare import EQUAL, SINGLE, SINGLE_MARGIN, ratio_columns, verdict
from multigpu.analysis.estimate import Estimate, estimate
from multigpu.analysis.fields import SAME
from multigpu.analysis.points import where
from multigpu.analysis.query import (
    by_machine,
    like_replicas,
    like_single,
    none_has,
    query,
    semantics,
)
from multigpu.analysis.words import job_words, missing, plural
from multigpu.machine.machine import this_machine


@dataclass(frozen=True, eq=False)
class Advice:
    """A ranking of one job on one machine.
    ranked: points, the fastest first, with kind and training (their semantics, named and in words),
        standing and of_best (_low, _high).
    best: the row to take; None: none trains the global batch's model. single: one device at its
        best with at least the kernels of `best`, where it is another point; replicas: independent
        replicas with these kernels, where no device alone was measured with them.
    over_single: the rate of `best` over that of one device (of one replica). failed: points that
        were tried and not measured.
    """

    ranked: pd.DataFrame
    best: pd.Series | None
    single: pd.Series | None
    over_single: Estimate | None
    failed: pd.DataFrame
    replicas: pd.Series | None = None


def advise(job: pd.DataFrame, points: pd.DataFrame) -> Advice:
    """Rank points that have `asked.SAME` in common: the fastest with an interval that trains the
    global batch's model is best (`_best`).
    points: all of the machine, among which its baseline is looked up.
    """
    ok = (
        job[job["n"] > 0].sort_values("rate", ascending=False, kind="stable").reset_index(drop=True)
    )
    known_as = [semantics(row) for _, row in ok.iterrows()]
    is_equal = np.array([one.facts.is_equal_training for one in known_as], dtype=bool)
    ok = ok.assign(
        kind=[one.kind for one in known_as], training=[one.facts.words for one in known_as]
    )
    same = ok[is_equal]
    known = same[same["rate_low"].notna()]
    best = _best(known) if len(known) else same.iloc[0] if len(same) else None
    if best is None:
        others = ok.assign(standing="not the same training", of_best=math.nan)
        return Advice(others, None, None, None, job[job["n"] == 0])
    ranked = pd.concat([ok, ratio_columns(ok, best, "of_best")], axis=1)
    says = verdict(ranked, "of_best")
    near = ranked["of_best"].between(1 / SINGLE_MARGIN, SINGLE_MARGIN)
    single_run = np.select(
        [ranked["of_best"] >= SINGLE_MARGIN, near], ["faster, single run", EQUAL], "slower"
    )
    standing = np.where(says.eq(SINGLE), single_run, says)
    standing = np.where(ranked["keys"].eq(best["keys"]), "best", standing)
    ranked["standing"] = np.where(is_equal, standing, "not the same training")
    failed = job[job["n"] == 0]
    if best["devices"] == 1:
        return Advice(ranked, best, None, None, failed)
    single, replicas = like_single(points, best), like_replicas(points, best)
    base = replicas if single is None else single
    if base is None:
        return Advice(ranked, best, None, None, failed)
    own = ranked.loc[[best.name]]
    over = estimate(own.join(ratio_columns(own, base, "over_single")), "over_single")
    if single is None:
        over = over / (1 / float(base["devices"]))
    return Advice(ranked, best, single, over, failed, replicas if single is None else None)


def _best(known: pd.DataFrame) -> pd.Series:
    """The fastest headline, or one not told apart from it whose interval ends surely higher below;
    one that was repeated less only where it is surely faster than that.
    """
    often = known[known["tier"].eq("headline")]
    first = known.iloc[0]
    if often.empty:
        return first
    best = often.iloc[0]
    near = often[ratio_columns(often, best, "over")["over_high"].to_numpy() >= 1]
    promises = near.iloc[int(near["rate_low"].argmax())]
    if promises["rate_low"] > SINGLE_MARGIN * best["rate_low"]:
        best = promises
    over = ratio_columns(known.iloc[[0]], best, "over")["over_low"].iloc[0]
    return first if first["tier"] != "headline" and over > 1 else best


def rankings(
    points: pd.DataFrame, fields: Mapping[str, Any], machine: str | None = None, most: int = 2
) -> tuple[list[Advice], str]:
    """A ranking a job of these fields, each of one machine, `most` at most (this machine's first),
    and in words what was left out.
    """
    found = query(points, fields, machine)
    if found.empty:
        return [], none_has(points, fields, machine)
    groups = []
    for own in by_machine(found, this_machine().name):
        if "devices" in fields:
            rows = own
        else:
            rows = own[own["devices"] == own.groupby("model")["devices"].transform("max")]
        jobs = [
            group
            for _, group in rows.groupby(list(SAME), dropna=False, sort=False)
            if group["n"].gt(0).any()
        ]
        groups += sorted(
            jobs, key=lambda group: (-int(group["rate_low"].notna().sum()), -len(group))
        )
    left = [
        f"  {name}: {plural(len(group), 'way')}"
        for name, group in zip(_told_apart(groups[most:]), groups[most:], strict=True)
    ]
    if left:
        head = [
            f"{plural(len(left), 'further job')} of these fields; name more fields, or --limit"
            f" {len(groups)}:"
        ]
    else:
        head = []
    advices = [
        advise(group, where(points, machine=group.iloc[0]["machine"])) for group in groups[:most]
    ]
    return advices, "\n".join([*head, *left[:8]])


def _told_apart(groups: Sequence[pd.DataFrame]) -> list[str]:
    """Return the jobs in words, with the fields in which those differ whose words are the same."""
    rows = [group.iloc[0] for group in groups]
    words = [f"{job_words(row)}, {row['machine']}" for row in rows]
    told = []
    for row, own in zip(rows, words, strict=True):
        alike = [other for other, its in zip(rows, words, strict=True) if its == own]
        apart = [name for name in SAME if len({str(other[name]) for other in alike}) > 1]
        more = [f"{name} {'unset' if missing(row[name]) else row[name]}" for name in apart]
        told.append(", ".join([own, *more]))
    return told
