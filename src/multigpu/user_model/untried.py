"""What a comparison did not try, and what trying it would cost."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from multigpu.analysis.words import joined
from multigpu.records.record import Measurement
from multigpu.spec.run import Run
from multigpu.user_model.candidates import PLAIN
from multigpu.user_model.placed import bracketed, called

if TYPE_CHECKING:
    from multigpu.user_model.result import Result


class WindowCost(NamedTuple):
    """Seconds that a first window of a way takes, once its processes are up; is_least: it may take
    longer, since nothing in its form was measured.
    """

    seconds: float
    is_least: bool

    def __str__(self) -> str:
        return f"{told_s(self.seconds)}{' or more' if self.is_least else ''}"


def told_s(seconds: float) -> str:
    """Seconds in two digits, or whole ones."""
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def _measured(result: Result) -> list[tuple[Run, Measurement]]:
    return [
        (record.run, record.measurement)
        for record in result.records
        if record.measurement and not record.run.traced_steps
    ]


def cost_of(run: Run, measured: list[tuple[Run, Measurement]]) -> WindowCost | None:
    """What a way would cost, by the first windows of ways in its form on as many devices, or else
    by those of the plain form; None: there are none.
    """
    firsts: dict[Run, float] = {}
    for own, found in measured:
        firsts[own] = max(found.total_s, firsts.get(own, 0.0))
    wide = [own for own in firsts if own.devices == run.devices] or list(firsts)
    alike = [firsts[own] for own in wide if own.execution == run.execution]
    if alike:
        return WindowCost(median(alike), is_least=False)
    plain = [firsts[own] for own in wide if own.execution == PLAIN[own.framework]]
    return WindowCost(median(plain or [firsts[own] for own in wide]), True) if wide else None


def untried(result: Result) -> dict[str, WindowCost | None]:
    """The ways that were not reached, and what a first window of each would cost."""
    left, measured = {*result.left_out}, _measured(result)
    return {called(run): cost_of(run, measured) for run in result.runs if called(run) in left}


def told_untried(result: Result, is_over: bool) -> str:
    """Name what was not reached, with what it costs; "": all was reached."""
    costs = untried(result)
    if not costs:
        return ""
    each: dict[str, list[str]] = {}
    for name, cost in costs.items():
        each.setdefault(str(cost) if cost else "", []).append(name)
    named = [
        joined([bracketed(name) for name in names])
        + (f": {cost}{' each' if len(names) > 1 else ''}" if cost else "")
        for cost, names in each.items()
    ]
    listed = "; ".join(named)
    if not is_over:
        return f"Not tried yet: {listed}."
    startups = [found.startup_s for _, found in _measured(result) if found.startup_s]
    beside = f"; a launch takes {told_s(median(startups))} besides" if startups else ""
    known = [cost.seconds for cost in costs.values() if cost]
    least = any(cost is None or cost.is_least for cost in costs.values())
    together = f"{told_s(sum(known))}{' or more' if least else ''}" if known[1:] else ""
    whole = f"; together {together}" if together else ""
    return (
        f"{result.budget_s:g} s did not reach {listed}{whole}{beside}. Give a larger budget: what"
        " was measured stays."
    )
