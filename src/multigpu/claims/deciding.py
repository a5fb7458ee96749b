"""What is still to be measured before the claims can be decided: of every grid the Runs that undecided contrasts compare.

A verdict needs one setting with enough repeats on every side, of as many models as its contrast asks for. Of all settings that the grids
can make on so many devices the cheapest are taken: a short time on a machine then decides as many claims as it can. An interval that
straddles its bound asks for nothing here: what it takes to settle it nobody knows beforehand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from multigpu.claims.core import Contrast, Predicate
from multigpu.claims.kinds import TracePredicate
from multigpu.claims.records import Comparison, Row, admitted, comparisons, matches
from multigpu.claims.results import Result
from multigpu.claims.rules import DECIDED
from multigpu.grid.entries import FEWEST, Planned
from multigpu.measure.point import launch_of
from multigpu.measure.sharing import START_S

Known = Collection[tuple[str, int]]
"""(digest of a Run, repeat) of what has been measured."""


@dataclass(frozen=True)
class Need:
    """What one claim waits for in one framework (or in both, where it compares them): entries with all their repeats.

    missing: measurements that have no Record yet. cost_s: what these may take, what other claims need as well left out. launches: those
        that measure them (`launch_of`).
    """

    claim: str
    framework: str
    entries: tuple[Planned, ...]
    missing: int
    cost_s: float
    launches: frozenset[Any] = frozenset()


def planned_row(entry: Planned, quantity: str) -> Row:
    """An entry as the row that its Record would be: all of one machine and version, with some figure of the quantity."""
    here = {"machine": "here", "gpu": "here", "framework_version": entry.run.framework, "timing_version": 0, "input_label": None}
    fields: dict[str, Any] = {name: getattr(entry.run, name) for name in type(entry.run).model_fields}
    return {**fields, **here, "key": entry.run.digest, "launch_id": "", "status": "ok", quantity: 1.0}


def repeated(entry: Planned, times: int) -> Planned:
    """The entry with so many repeats: the first of a headline point, or those that a screening point would have as one."""
    launches = entry.launches if entry.tier == "headline" else FEWEST
    more = range(max(launches) + 1, max(launches) + 1 + max(0, times - len(launches)))
    return replace(entry, tier="headline", launches=(*launches, *more)[:times], first_repeat=0)


def highest_devices(found: Iterable[Comparison]) -> list[Comparison]:
    """Of settings that differ in the device count alone, the one with the most devices."""
    best: dict[object, Comparison] = {}
    for one in found:
        held = best.setdefault(one.identity, one)
        if held.devices < one.devices:
            best[one.identity] = one
    return list(best.values())


class _Search:
    """The cheapest settings, whatever was chosen before costing nothing more."""

    def __init__(self, planned: Sequence[Planned], known: Known) -> None:
        self.entries = {entry.run.digest: entry for entry in planned}
        self.known = set(known)

    def missing(self, entry: Planned, least: int) -> list[tuple[str, int]]:
        digest = entry.run.digest
        return [(digest, repeat) for repeat in range(least) if (digest, repeat) not in self.known]

    def cost_s(self, entries: Iterable[Planned], least: int) -> float:
        return sum(entry.cost_s * len(self.missing(entry, least)) for entry in entries)

    def sides(self, comparison: Comparison, least: int) -> list[Planned]:
        """The Run of each side that costs least: some differ in nothing but their number of steps."""
        chosen = [
            min((self.entries[row["key"]] for row in group), key=lambda entry: self.cost_s([entry], least)) for group in comparison.groups
        ]
        return list({entry.run.digest: entry for entry in chosen}.values())

    def settle(self, contrast: Contrast, predicate: Predicate, frameworks: Collection[str], able: set[str]) -> list[Planned]:
        """The Runs of the cheapest settings that, with models that have enough repeats already (`able`), make the contrast decidable."""
        traced = isinstance(predicate, TracePredicate)
        scope = [
            row
            for entry in self.entries.values()
            if bool(entry.run.traced_steps) is traced and entry.run.energy_window_s is None and entry.run.framework in frameworks
            for row in [planned_row(entry, contrast.quantity)]
            if admitted(row, predicate) and matches(row, contrast.where) and row["timed_steps"] >= contrast.steps_at_least
        ]
        found = list(comparisons(contrast, scope))
        if contrast.counts == "highest":
            found = highest_devices(found)
        priced = sorted(((self.sides(one, predicate.min_n), one) for one in found), key=lambda pair: self.cost_s(pair[0], predicate.min_n))
        models, chosen = set(able), []
        for sides, comparison in priced:
            mine = {str(model) for model in comparison.models}
            if mine <= models:
                continue
            chosen += sides
            models |= mine
            if len(models) >= contrast.models_at_least:
                break
        return list({entry.run.digest: entry for entry in chosen}.values())


def needs(results: Sequence[Result], planned: Sequence[Planned], known: Known) -> list[Need]:
    """What each undecided claim waits for, by claim and framework; a claim that no grid can decide on these devices is left out.

    Args:
        results: of `evaluate_all`. planned: all that may be measured. known: what has been measured on the machine in question.
    """
    search, found = _Search(planned, known), []
    for result in results:
        for predicate in result.claim.predicates:
            if type(predicate) not in (Predicate, TracePredicate):
                continue
            groups = [predicate.frameworks] if predicate.joins_frameworks else [(name,) for name in predicate.frameworks]
            for group in groups:
                name = " / ".join(group)
                answer = result.by_framework.get(name)
                if answer is None or answer.verdict in DECIDED:
                    continue
                entries: dict[str, Planned] = {}
                for contrast in predicate.contrasts:
                    able = {
                        part
                        for setting in result.settings
                        if setting.contrast == contrast.label and setting.enough and setting.framework in (*group, name)
                        for part in str(setting.fields.get("model")).split(" / ")
                    }
                    if len(able) >= contrast.models_at_least:
                        continue
                    for entry in search.settle(contrast, predicate, group, able):
                        entries.setdefault(entry.run.digest, repeated(entry, predicate.min_n))
                missing = [point for entry in entries.values() for point in search.missing(entry, predicate.min_n)]
                if missing:
                    cost_s = search.cost_s(entries.values(), predicate.min_n)
                    own = [point for entry in entries.values() for point in entry.points()]
                    launches = frozenset(launch_of(point) for point in own if (point.run.digest, point.repeat) in set(missing))
                    found.append(Need(result.claim.number, name, tuple(entries.values()), len(missing), cost_s, launches))
                    search.known |= set(missing)
    return found


def affordable_needs(found: Sequence[Need], budget_s: float, pace: float | None = None) -> list[Need]:
    """The needs that a budget allows, the cheapest first, each whole: half of the repeats decide nothing.

    Args:
        pace: what measuring takes of the estimates, the starts of launches apart: each then costs its start, once for all needs; None:
            the grid's estimates, which include starts.
    """
    chosen, left, started = [], budget_s, frozenset[Any]()
    for need in sorted(found, key=lambda need: need.cost_s):
        cost = need.cost_s if pace is None else need.cost_s * pace + START_S * len(need.launches - started)
        if cost <= left:
            left -= cost
            started |= need.launches
            chosen.append(need)
    return chosen


def undecided(found: Sequence[Need]) -> list[Planned]:
    """All that is needed as one grid; a Run that several claims need with as many repeats as any of them."""
    grid: dict[str, Planned] = {}
    for entry in (entry for need in found for entry in need.entries):
        known = grid.setdefault(entry.run.digest, entry)
        if len(known.points()) < len(entry.points()):
            grid[entry.run.digest] = entry
    return list(grid.values())
