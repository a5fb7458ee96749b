"""List what must still be measured before the claims can be decided: of every grid the Runs that
undecided contrasts compare.

A verdict needs one setting with enough repeats on every side, of as many models as its contrast
asks for: the cheapest that grids can make.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from multigpu.grids.planned import Planned, each_once
from multigpu.runner.point import START_S, launch_of
from multigpu_study.claims.command import claim_results
from multigpu_study.claims.core import DECIDED, Contrast
from multigpu_study.claims.pairs import paired
from multigpu_study.claims.results import ClaimResult, models_of
from multigpu_study.claims.rows import admitted, rows


@dataclass(frozen=True)
class Need:
    """The measurements that one claim waits for in one framework (or in both, where it compares
    them): entries with all their repeats. missing: measurements without a Record. cost_s: what
    these may take, unless other claims need them too, in these launches.
    """

    claim: str
    framework: str
    entries: tuple[Planned, ...]
    missing: int
    cost_s: float
    launches: frozenset[Any] = frozenset()


def planned_rows(entries: Iterable[Planned]) -> pd.DataFrame:
    """The entries as what their Records would be: all of one machine and version."""
    here = {"machine": "here", "gpu": "here", "timing_version": 0, "launch_id": "", "status": "ok"}
    own = [
        dict(entry.run)
        | {**here, "framework_version": entry.run.framework, "key": entry.run.digest}
        for entry in entries
    ]
    return rows(pd.DataFrame(own))


def cheapest(
    contrast: Contrast, table: pd.DataFrame, cost_s: Callable[[str], float]
) -> list[tuple[float, set[str], list[str]]]:
    """Every setting that planned Runs make, the cheapest first: its cost, its models, and the
    digests of each side's cheapest Run.
    table: of `planned_rows` those in the contrast's scope. cost_s: by digest, what a Run still
        costs.
    """
    pairs = paired(contrast, table.assign(**{contrast.quantity: 1.0}))
    settings = (
        pairs.settings.drop_duplicates("identity", keep="last")
        if contrast.counts == "highest"
        else pairs.settings
    )
    costs = pairs.records["key"].map(cost_s).sort_values(kind="stable")
    # some differ only in their number of steps
    first = pairs.records.loc[costs.index].drop_duplicates("point").set_index("point")["key"]
    found = []
    for row, *points in settings[[*range(len(contrast.terms))]].itertuples(name=None):
        runs = first[points].unique().tolist()
        found.append((sum(map(cost_s, runs)), models_of([pairs.fields[row]]), runs))
    return sorted(found, key=lambda setting: setting[0])


def needs(
    results: Sequence[ClaimResult], planned: Sequence[Planned], known: Iterable[tuple[str, int]]
) -> list[Need]:
    """List what each undecided claim waits for, by claim and framework; a claim that no grid can
    decide on these devices is left out. planned: all that may be measured. known: (digest of a Run,
    repeat) of what has been; what one claim needs costs the next ones nothing.
    """
    measured, found = set(known), []
    by_digest = {entry.run.digest: entry for entry in planned}
    usual = [entry for entry in by_digest.values() if entry.run.energy_window_s is None]
    tables = {
        of: planned_rows(e for e in usual if bool(e.run.traced_steps) is (of == "traces"))
        for of in ("runs", "traces")
    }
    asked = [
        (one, predicate, group)
        for one in results
        for predicate in one.claim.predicates
        for group in predicate.groups
    ]
    for result, predicate, group in asked:
        name, chosen = " / ".join(group), dict[str, Planned]()
        answer = result.by_framework.get(name)
        if predicate.of not in tables or answer is None or answer.verdict in DECIDED:
            continue

        def cost_s(key: str, least: int = predicate.min_n) -> float:
            return by_digest[key].cost_s * sum(
                (key, repeat) not in measured for repeat in range(least)
            )

        for contrast in predicate.contrasts:
            enough = [
                one
                for one in result.settings
                if one.contrast == contrast.label and one.enough and one.framework in (*group, name)
            ]
            models, own = (
                models_of(setting.fields for setting in enough),
                admitted(tables[predicate.of], predicate, contrast, group),
            )
            for _, more, runs in (
                cheapest(contrast, own, cost_s) if len(models) < contrast.models_at_least else ()
            ):
                if len(models) < contrast.models_at_least and not more <= models:
                    chosen |= {
                        key: by_digest[key].repeated(predicate.min_n)
                        for key in runs
                        if key not in chosen
                    }
                    models |= more
        points = [
            point
            for entry in chosen.values()
            for point in entry.points()
            if (point.run.digest, point.repeat) not in measured
        ]
        if points:
            launches = frozenset(map(launch_of, points))
            found.append(
                Need(
                    result.claim.number,
                    name,
                    tuple(chosen.values()),
                    len(points),
                    sum(map(cost_s, chosen)),
                    launches,
                )
            )
            measured.update((point.run.digest, point.repeat) for point in points)
    return found


def chosen(
    arguments: argparse.Namespace,
    planned: Sequence[Planned],
    known: Iterable[tuple[str, int]],
    pace: float | None,
) -> list[Planned]:
    """Choose for undecided claims from the grids, claim by claim as far as the budget goes: what
    `measure --undecided` measures. known, pace: as `needs` and `affordable_needs` take them.
    """
    waiting = needs(claim_results(arguments), planned, known)
    for need in waiting:
        print(
            f"{need.claim} in {need.framework}: {need.missing} measurements, about"
            f" {need.cost_s:.0f} s"
        )
    if arguments.budget_s is not None:
        allowed = affordable_needs(waiting, arguments.budget_s, pace)
        print(f"{arguments.budget_s} s may decide {len(allowed)} of {len(waiting)}")
        waiting = allowed
    return each_once(entry for need in waiting for entry in need.entries)


def affordable_needs(
    found: Sequence[Need], budget_s: float, pace: float | None = None
) -> list[Need]:
    """The needs that a budget allows, the cheapest first, each whole: half of the repeats decide
    nothing.
    pace: what measuring takes of the estimates without starts of launches, each of which costs its
        own once; None: estimates include them.
    """
    chosen, left, started = [], budget_s, frozenset[Any]()
    for need in sorted(found, key=lambda need: need.cost_s):
        cost = (
            need.cost_s
            if pace is None
            else need.cost_s * pace + START_S * len(need.launches - started)
        )
        if cost <= left:
            left, started = left - cost, started | need.launches
            chosen.append(need)
    return chosen
