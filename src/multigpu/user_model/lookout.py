"""Look after the launches of a comparison: a budget that ends is the end, also of a Run that hangs;
a placement that hangs is said and left, and the others go on.
"""

import contextlib
import math
import os
import signal
import time

from multigpu.engines.common.failures import Fault
from multigpu.engines.common.standing import Standing, board_file, standings, stuck, with_stacks
from multigpu.runner.plan import Journal, Plan
from multigpu.runner.point import Point
from multigpu.runner.timed import TIMED, is_solo
from multigpu.spec.run import Run
from multigpu.user_model.placed import called

LOOK_S = 0.5  # from one look to the next
COMPILING_S = 120.0  # a Run that torch.compile serves may not get on so long, at least
QUIET_S = 3.0  # a process that got on since then is slow, and does not hang


class OutOfTime(Exception):
    """The budget is used up, or what of it one launch may take."""


def alike(run: Run, other: Run) -> bool:
    """Whether two Runs are one way to train one job, whatever their steps."""
    return (run.model, called(run)) == (other.model, called(other))


class Lookout:
    """Called while a launch goes on (`sweep.launch_plan`). ends_s: when all ends, by the monotonic
    clock; patience_s: so long a Run may not get on before it is left. trouble: why a launch did not
    come to its first Run.
    """

    def __init__(self, ends_s: float, patience_s: float) -> None:
        self.ends_s, self.patience_s, self.trouble = ends_s, patience_s, ""
        self.looked_s = self.began_s = 0.0
        self.launch, self.seen, self.done = "", 0, set[int]()

    def __call__(self, plan: Plan) -> None:
        """Look, now and then; an OutOfTime ends the launch."""
        now_s = time.monotonic()
        if plan.launch_id != self.launch:
            self.launch, self.seen, self.done, self.began_s = plan.launch_id, 0, set(), now_s
        over = now_s >= self.ends_s
        if now_s < self.looked_s + LOOK_S and not over:
            return
        self.looked_s = now_s
        journal = Journal(plan.scratch)
        self._pass_on(plan, journal)
        event = journal.open_item()
        if event is None:
            self._not_begun(over, now_s)
            return
        item, key = plan.items[event["index"]], event["key"]
        started_s = event["at"]
        found = [one for one in standings(plan.memory, key) if one.since_s > started_s - LOOK_S]
        quiet_s = now_s - max([started_s, *(one.since_s for one in found)])
        # as long as a process has yet to come, the others wait for it: only the budget ends that
        complete = len(found) >= (1 if is_solo(item.run) else item.run.devices)
        patient_s = max(self.patience_s, COMPILING_S * ("compiled" in item.run.execution))
        patience_s = QUIET_S if over else patient_s if complete else math.inf
        if quiet_s > patience_s:
            why = self._why(plan, key, found, quiet_s)
            if over:
                self._keep(plan, item, f"{why}, when the budget ended")
            else:
                self._leave(plan, journal, item, found, why)
        if over:
            raise OutOfTime

    def _not_begun(self, over: bool, now_s: float) -> None:
        if not self.done and now_s > self.began_s + self.patience_s:
            took = f"{now_s - self.began_s:.0f} s"
            self.trouble = f"the processes of a launch had not come up after {took}"
        if over:
            raise OutOfTime

    def _why(self, plan: Plan, key: str, found: list[Standing], quiet_s: float) -> str:
        if not found:
            return f"its processes did not come together for {quiet_s:.0f} s"
        journal = Journal(plan.scratch)
        now_s = time.monotonic()
        files = [journal.stack_file(key, one.rank) for one in found]
        return stuck(with_stacks(found, files), now_s)

    def _pass_on(self, plan: Plan, journal: Journal) -> None:
        """Leave out the repeats of what failed once, which would fail again: these are passed over,
        each with the reason.
        """
        events = journal.events()
        for event in events[self.seen :]:
            if event["event"] != "done" or event["index"] in self.done:
                continue
            self.done.add(event["index"])
            if event["status"] != "ok":
                fault: Fault = (event["status"], event.get("reason", ""))
                self._note(plan, journal, plan.items[event["index"]], fault)
        self.seen = len(events)

    def _note(self, plan: Plan, journal: Journal, item: Point, fault: Fault) -> None:
        for index, other in enumerate(plan.items):
            if index not in self.done and alike(other.run, item.run):
                journal.note(plan.key(other), fault)

    def _leave(
        self, plan: Plan, journal: Journal, item: Point, found: list[Standing], why: str
    ) -> None:
        """Have the launch go on without this placement: its processes are killed, and those that
        are started in their place find the reason.
        """
        self._note(plan, journal, item, ("timeout", why))
        for one in found:
            board_file(plan.memory, plan.key(item), one.rank).unlink(missing_ok=True)
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.process, signal.SIGKILL)

    def _keep(self, plan: Plan, item: Point, why: str) -> None:
        """Write what the workers no longer can: the Record of a Run that was cut off, which the
        same call measures again.
        """
        items: list[Point] = plan.items[1:]  # type: ignore[assignment]
        left = [o for o in items if alike(o.run, item.run) and plan.find(o) is None]
        store = TIMED.store(plan.records)
        for due in left[:1]:
            record = plan.record(due, "timeout", why, plan.launch_id, **TIMED.unread(due))
            with contextlib.suppress(OSError):
                store.write(record)
