"""In which order a comparison tries its ways: what a short budget must not miss comes first."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from multigpu.placements import find_placement
from multigpu.spec.run import Run
from multigpu.user_model.candidates import FIRST, MANY_FORMS, PLAIN, trains_the_same
from multigpu.user_model.placed import called, changes_precision

NEW_ON_CPU = 2
"""Ways that the first launch measures beside one device, on CPUs, where a launch takes as long as
three windows: the second measures them again, so that intervals come early.
"""


class Order(NamedTuple):
    """Names of ways. first: one device, and of each family the way that can win; later: all others,
    what is forecast to be dominated last. at_once: ways of the first round that the first launch
    measures (None: all).
    """

    first: list[str]
    later: list[str]
    at_once: int | None = None


def family(run: Run) -> tuple[str, str, bool, str]:
    """What ways have in common of which one stands for all: where the model is computed, where its
    variables live, whether an update is divided, and the form in which a step is launched.
    """
    if run.devices == 1:
        return "one", "", False, run.execution
    row = find_placement(run.placement)
    return row.compute, row.variables, row.update == "sharded", run.execution


def rank(run: Run, micro_steps: int, captured: bool) -> int:
    """How late a way is tried: 0 if it can win; 1: the replicas that share nothing, which tell what
    sharing costs; 2: it can win where compiling pays, or where the host keeps up; 3: its family has
    a nearer way; 4: forecast to be dominated, since it does all that another way does, and more; 5:
    it trains otherwise.

    captured: whether steps are captured, too, which are as fast as launched ones or faster.
    """
    launched = run.execution == PLAIN[run.framework]
    if run.placement == "independent" and run.devices > 1 and launched:
        return 1
    if changes_precision(run) or (run.devices > 1 and not trains_the_same(run.placement)):
        return 5
    if run.recompute or (run.micro_steps or 1) > micro_steps:
        return 4
    if launched:
        return 2 if captured and run.devices > 1 and run.placement != FIRST[0] else 0
    if run.devices > 1 and run.placement not in MANY_FORMS:
        return 3
    return 2 if "compiled" in run.execution else 0


def order_of(runs: Sequence[Run], micro_steps: int = 1) -> Order:
    """The order of a comparison's Runs, which come in the order of their candidates. micro_steps:
    of the job itself.
    """
    captured = any("captured" in run.execution for run in runs)
    ranks: dict[str, int] = {}
    met = set[tuple[str, str, bool, str]]()
    for run in runs:
        place = rank(run, micro_steps, captured)
        if place in (0, 2):
            place = 3 if family(run) in met else place
            met.add(family(run))
        ranks[called(run)] = place
    first = [name for name, place in ranks.items() if place == 0]
    later = sorted((name for name in ranks if ranks[name]), key=ranks.__getitem__)
    few = runs[0].device_type == "cpu" and runs[0].framework == "torch"
    return Order(first, later, NEW_ON_CPU if few else None)


def in_order(order: Order, runs: Mapping[str, Run]) -> list[str]:
    """The names of these Runs in this order."""
    return [name for name in (*order.first, *order.later) if name in runs]
