"""Launches of a comparison: which Runs one has, measuring them within the budget, and the race that
asks for the next.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from multigpu.machine.lock import memory_folder, scratch_folder
from multigpu.machine.process import WITH_KERAS
from multigpu.placements.resolve import semantics_of
from multigpu.records.base import STATUSES
from multigpu.records.record import RecordStore
from multigpu.runner.point import Point, launch_of
from multigpu.runner.summary import Summary
from multigpu.runner.sweep import launch_plan, make_plan
from multigpu.runner.timed import TIMED
from multigpu.spec.run import Run
from multigpu.user_model.budget import Budget
from multigpu.user_model.candidates import STEPS
from multigpu.user_model.lookout import Lookout, OutOfTime
from multigpu.user_model.order import in_order, order_of
from multigpu.user_model.placed import ONE, called
from multigpu.user_model.race import LAUNCHES, next_launch
from multigpu.user_model.result import Result

COLD_STEPS = STEPS[0] - 1  # of the Run that warms a launch, or a few more
TURNS = 2  # windows of a way in a launch, one after all others' first
MOST_FRUITLESS = 2  # launches that gave no window of a way, before it is left
# what ended so is tried again when it is compared again
AGAIN = tuple(status for status in STATUSES if status != "ok")


def shared_launch(point: Point) -> Any:
    """Return what points must share to be measured by one launch of a comparison: as `launch_of`,
    but Runs of PyTorch may differ in how many cores they use, to which its workers keep themselves.
    """
    if point.run.framework != "torch":
        return launch_of(point)
    return launch_of(
        point.model_copy(update={"run": point.run.model_copy(update={"host_cores": None})})
    )


def cold_steps(run: Run) -> int:
    """Return the steps of the Run that warms a launch: whole cycles of a placement that averages
    now and then, and a count that no window has, so that it stands in for none of them.
    """
    cycle = semantics_of(run).every
    return next(n for n in count(cycle, cycle) if n >= COLD_STEPS and n not in STEPS)


def measured_within(
    points: Sequence[Point],
    store: RecordStore,
    bar: Budget,
    lookout: Lookout | None = None,
    environment: Callable[[], Mapping[str, str]] = lambda: WITH_KERAS,
    after: Callable[[], None] = lambda: None,
) -> list[str]:
    """Measure the points in order, in as few launches as can be, until the budget ends; first a few
    steps, since a launch begins cold. Gives a sentence for each launch that died; the others go on.

    environment: gives that of a launch, just before it. after: called once one has ended, when
        nothing is being measured.
    """
    troubles = list[str]()
    order = {(point.run, point.repeat): place for place, point in enumerate(points)}
    launches = list(dict.fromkeys(map(shared_launch, points)))
    for place, launch in enumerate(launches):
        with (
            scratch_folder("multigpu-compare-") as scratch,
            memory_folder() as memory,
            contextlib.suppress(OutOfTime),
        ):
            own = [point for point in points if shared_launch(point) == launch]
            plan, known = make_plan(
                TIMED, own, store.root, scratch, memory, AGAIN, environment=environment()
            )
            items = sorted(plan.items, key=lambda item: order[item.run, item.repeat])
            bar.label = ""
            bar.update(known)
            if items:
                bar.begin(len(launches) - place)
                # on all devices, so that no process of the launch begins cold
                widest = max(items, key=lambda item: item.run.devices)
                few = widest.run.model_copy(update={"timed_steps": cold_steps(widest.run)})
                cold = widest.model_copy(update={"run": few, "repeat": 0})
                attempt = store.next_attempt(plan.machine, plan.key(cold))
                items = [cold.model_copy(update={"attempt": attempt}), *items]
                try:
                    launch_plan(
                        plan.model_copy(update={"items": items}), bar, Summary(), look=lookout
                    )
                except RuntimeError as error:
                    troubles.append(str(error))
        after()
    return troubles


def next_points(
    result: Result, fruitless: Mapping[str, int], most: int, timeout_s: float
) -> list[Point]:
    """Return what the next launches of the race measure: a window of each way in its first rounds,
    and later `TURNS` of those still in, one turn after another; none: the race is over.

    fruitless: of each way, launches that gave no window of it. most: launches of a way, at most.
    """
    runs = {
        called(run): run for run in result.runs if fruitless.get(called(run), 0) < MOST_FRUITLESS
    }
    order = order_of(result.runs, result.described.micro_steps)
    may_lead = [name for name in result.names if result.trains_the_same(name)]
    base = result.base.name if result.base else ONE
    chosen = next_launch(
        in_order(order, runs), result.windows, may_lead, base, most, order.first, order.at_once
    )
    done = Counter(called(record.run) for record in result.records if record.status == "ok")
    # where launches are cheap, the leader first has as many of them as a verdict takes
    race = result.race
    ahead = race is not None and race.launches[race.leader] >= LAUNCHES
    points = []
    for turn in range(TURNS if ahead or order.at_once is None else 1):
        for place, name in enumerate(chosen):
            if turn and not done[name] and name != base:
                continue  # what is met first has one window, short as it is
            # a capture that fails spoils its processes: each has its own, until it is known to work
            captured = "captured" in runs[name].execution
            own = (1 if done[name] else 2 + place) if captured else 0
            points.append(Point(runs[name], done[name] + turn, own, timeout_s=timeout_s))
    return points


def raced(
    result_of: Callable[[], Result],
    measure: Callable[[Sequence[Point]], list[str]],
    most: int,
    timeout_s: float,
    is_over: Callable[[], bool] = lambda: False,
) -> list[str]:
    """Run the race until a leader is told apart, `measure` gives nothing more, or it is over; a
    sentence for each launch that died.
    """
    result, fruitless, troubles = result_of(), Counter[str](), list[str]()
    while not is_over() and (points := next_points(result, fruitless, most, timeout_s)):
        names = {called(point.run) for point in points}
        before = Counter(r.key for r in result.records)
        troubles += measure(points)
        result = result_of()
        new = [record for record in result.records if record.key not in before]
        for name in names - {called(record.run) for record in new if record.status == "ok"}:
            broke = any(called(record.run) == name for record in new)
            fruitless[name] += MOST_FRUITLESS if broke else 1
    return troubles
