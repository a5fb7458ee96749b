"""The one sweep: measure points of any experiment that have no Record yet, one launch for many,
followed by a bar. Imports no framework.
"""

import contextlib
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from multigpu.machine import private_network
from multigpu.machine.lane import this_lane
from multigpu.machine.lock import machine_lock, memory_folder, scratch_folder
from multigpu.machine.machine import Machine, framework_version, this_machine
from multigpu.machine.process import STOPPED_S, StoppedProcesses, end_in_order, last_words
from multigpu.records.record import RecordStore
from multigpu.records.store import Store
from multigpu.runner.experiment import AnyItem, Experiment
from multigpu.runner.hosts.group import LaunchHosts
from multigpu.runner.hosts.launching import LOOPBACK, libraries_environment, start_agent
from multigpu.runner.launch_environment import launch_environment
from multigpu.runner.plan import MAX_STARTS, Journal, Plan
from multigpu.runner.point import Point
from multigpu.runner.summary import Bar, Summary, followed
from multigpu.runner.timed import TIMED, is_solo, listens_everywhere

ENDING_S = 20.0
"""For a launch to end once all is measured: torch's agent waits for ever for killed workers."""

ENDED_IN_TIME_S = 1.0
"""For a launch to end in order where its end was called for in a budget."""


def make_plan(
    kind: Experiment[AnyItem],
    items: Sequence[AnyItem],
    records: Path,
    scratch: Path,
    memory: Path,
    retry: Sequence[str] = (),
    hook: str | None = None,
    environment: Mapping[str, str] | None = None,
    machine: Machine | None = None,
) -> tuple[Plan, int]:
    """The plan of one launch without what has a Record of no status in `retry`, and how many were
    left out. machine: if not this one.
    """
    run = items[0].run
    plan = Plan(
        experiment=kind.path,
        items=[],
        program="solo" if is_solo(run) else "worker",
        workers=1,
        framework=run.framework,
        machine=(machine or this_machine()).name,
        versions=kind.versions(),
        framework_version=framework_version(run.framework),
        records=records,
        scratch=scratch,
        memory=memory,
        launch_id=uuid.uuid4().hex[:12],
        hook=hook,
        environment={**({"MULTIGPU_HOOK": hook} if hook else {}), **(environment or {})},
    )
    store, missing = kind.store(records), []
    for item in kind.ordered(items, plan.launch_id):
        known = plan.find(item)
        if known is None or known.status in retry:
            missing.append(
                item.model_copy(
                    update={"attempt": store.next_attempt(plan.machine, plan.key(item))}
                )
            )
    workers = (
        1 if plan.program == "solo" else max((item.run.devices for item in missing), default=1)
    )
    return plan.model_copy(update={"items": missing, "workers": workers}), len(items) - len(missing)


def sweep(
    kind: Experiment[AnyItem],
    items: Sequence[AnyItem],
    store: Store[Any],
    retry: Sequence[str] = (),
    progress: bool = True,
    hook: str | None = None,
    environment: Mapping[str, str] | None = None,
    company: LaunchHosts | None = None,
    bar: Bar | None = None,
    budget_s: float | None = None,
    stop: Event | None = None,
) -> Summary:
    """Measure every item that has no Record yet; whatever happens on the way, what was measured
    stays.

    Args:
        environment: what else processes find in theirs, beside what a Run wants there.
        company: the hosts of this launch, of which this one is the first, or that are made on this
            one.
        bar: told of what is done in place of one of this sweep's own.
        budget_s: seconds for all of it, of which each launch may use an equal share of what is
            left.
        stop: set by another thread where this one is to end as by Ctrl-C.

    Raises:
        ValueError: an item cannot run here, its input cannot be read, or Records cannot be written;
            nothing was started.
        RuntimeError: the launcher itself died; what it had measured is kept and the same call goes
            on from there.
    """
    kind.check_all(items, company)
    store.check_writable(this_machine().name)
    with followed(len(items), progress, bar) as (summary, shown), contextlib.ExitStack() as held:
        launches = sorted({kind.launch_of(item) for item in items})
        until_s = None if budget_s is None else time.monotonic() + budget_s
        for number, launch in enumerate(launches):
            chosen = [item for item in items if kind.launch_of(item) == launch]
            first = chosen[0].run
            machine = company.machine(first.devices) if company else None
            more = {**(environment or {}), **getattr(first, "environment", {})}
            with scratch_folder("multigpu-sweep-") as scratch, memory_folder() as memory:
                plan, reused = make_plan(
                    kind, chosen, store.root.resolve(), scratch, memory, retry, hook, more, machine
                )
                summary.reused += reused
                shown.update(reused)
                if not plan.items:
                    continue
                waited = time.monotonic()
                held.enter_context(machine_lock())  # until the sweep ends
                if until_s is not None:
                    until_s += time.monotonic() - waited
                    share = (until_s - time.monotonic()) / (len(launches) - number)
                    plan = plan.model_copy(update={"until_s": time.monotonic() + share})
                launch_plan(plan, shown, summary, company, stop)
                if again := disturbed(plan, summary):
                    launch_plan(again, shown, summary, company, stop)
    return summary


def disturbed(plan: Plan, summary: Summary) -> Plan | None:
    """Plan to measure once more, as new attempts, what this launch measured while others disturbed
    it or a GPU was throttled; both stay. None where there is nothing of the kind, and in a lane:
    beside others everything would be told as disturbed.
    """
    if not plan.kind.watched or ((lane := this_lane(plan.environment)) and lane.neighbours):
        return None
    items = []
    for item in plan.items:
        record = plan.find(item)
        if (
            record
            and record.launch_id.startswith(plan.launch_id)
            and record.surroundings
            and (why := record.surroundings.disturbances)
        ):
            items.append(item.model_copy(update={"attempt": record.attempt + 1}))
            summary.notes.append(f"measured again: {item.label}: {'; '.join(why)}")
    if not items:
        return None
    scratch = plan.scratch / "again"  # what the journal knows of the first attempt is over
    scratch.mkdir()
    return plan.model_copy(
        update={"items": items, "scratch": scratch, "launch_id": uuid.uuid4().hex[:12]}
    )


def launch_plan(
    plan: Plan,
    bar: Bar,
    summary: Summary,
    company: LaunchHosts | None = None,
    stop: Event | None = None,
    look: Callable[[Plan], None] | None = None,
) -> None:
    """Run one plan to its end, on several hosts again until they get through it; a RuntimeError:
    the launcher died, or a host was lost. look: called several times a second meanwhile; what it
    raises ends the launch.
    """
    finished: set[int] = set()
    # every item may end some
    for start in range(MAX_STARTS * len(plan.items) + 1 if company else 1):
        if company and start:
            company.settle(Journal(plan.scratch))
        code = _launch_once(
            company.offer(plan) if company else plan, bar, summary, company, finished, stop, look
        )
        if code == 0:
            return
    logs = [plan.scratch / "agent.log", *sorted((plan.scratch / "logs").rglob("stderr.log"))]
    words = last_words("\n".join(log.read_text(errors="replace") for log in logs if log.exists()))
    done = sum(summary.statuses.values())
    raise RuntimeError(
        f"the launcher ended with {code} after {done} Runs, all kept ({words}); the same command"
        " goes on from there"
    )


def _launch_once(
    plan: Plan,
    bar: Bar,
    summary: Summary,
    company: LaunchHosts | None,
    finished: set[int],
    stop: Event | None,
    look: Callable[[Plan], None] | None,
) -> int:
    """One start of the plan's workers; the agents' exit code. finished: what was reported as done,
    of earlier starts too.
    """
    journal, stopped, over_s = Journal(plan.scratch), StoppedProcesses(), time.monotonic()
    seen = len(journal.events())
    environment = (
        launch_environment()
        | ({} if company else libraries_environment(LOOPBACK))
        | plan.environment
    )
    agents: list[subprocess.Popen[Any]] = []
    with open(plan.scratch / "agent.log", "w") as log:
        try:
            for prefix, own in company.agents(plan) if company else [(_hidden(plan), plan)]:
                agents.append(start_agent(own, environment, log, prefix))
            while True:
                if stop and stop.is_set():
                    raise KeyboardInterrupt
                if look:
                    look(plan)
                ended = [agent.poll() for agent in agents]
                new = journal.events()[seen:]
                seen += len(new)
                for event in new:
                    _show(event, plan, bar, summary, finished)
                kept = (
                    f"{sum(summary.statuses.values())} Runs were measured and are kept, and the"
                    " same command goes on from there"
                )
                if end := next((event for event in new if event["event"] == "end"), None):
                    raise RuntimeError(f"{end['why']}; {kept} once {end['until']}")
                for killed in stopped.kill([agent.pid for agent in agents]):
                    note = (
                        f"process {killed} was stopped from outside for {STOPPED_S:g} s: it was"
                        " ended"
                    )
                    if killed in (agent.pid for agent in agents):
                        raise RuntimeError(f"{note}, and with it its launch; {kept}")
                    summary.notes.append(note)
                if None not in ended or any(ended) or (company and company.in_trouble()):
                    break
                if len(finished) < len(plan.items):
                    over_s = time.monotonic()
                elif time.monotonic() > over_s + ENDING_S:
                    return 0
                time.sleep(0.1)
        finally:
            # who looks wants it to end in time, and what was measured is on the disk
            end_in_order(agents, 0.0 if company else ENDED_IN_TIME_S if look else 20.0)
    return next((code for code in ended if code), agents[0].returncode)


def _hidden(plan: Plan) -> list[str]:
    """The words that give an agent a network of its own, where what it starts would listen on all
    interfaces of this one host.
    """
    everywhere = any(listens_everywhere(item.run) for item in plan.items)
    return private_network.prefix() if everywhere and private_network.why_not() is None else []


def _show(
    event: Mapping[str, Any], plan: Plan, bar: Bar, summary: Summary, finished: set[int]
) -> None:
    if event["event"] == "start":
        bar.set_description(event["label"])
    # a restarted launch passes over what is done and says so again
    if event["event"] != "done" or event["index"] in finished:
        return
    finished.add(event["index"])
    summary.statuses[event["status"]] += 1
    bar.update(1)
    if "told" in event:
        bar.set_postfix_str(event["told"])
    elif event["status"] != "ok" and event["reason"]:
        summary.troubles.append(
            f"{event['status']}: {plan.items[event['index']].label}: {event['reason']}"
        )


def measure(
    points: Sequence[Point],
    store: RecordStore,
    retry: Sequence[str] = (),
    progress: bool = True,
    hook: str | None = None,
    tensorboard: Path | None = None,
    company: LaunchHosts | None = None,
    bar: Bar | None = None,
) -> Summary:
    """As `sweep`. tensorboard: a folder for TensorBoard's logs, one folder a Run in it; of
    TensorFlow in one process only.
    """
    environment = {}
    if tensorboard:
        for point in points:
            if (point.run.framework, point.run.processes) != ("tensorflow", "one"):
                raise ValueError(
                    "TensorBoard logs need framework=tensorflow and processes=one, which"
                    f" {point.run.label()} has not"
                )
        try:
            tensorboard.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"TensorBoard's logs cannot be written to {tensorboard}: {error.strerror}; choose"
                " another folder"
            ) from None
        environment["MULTIGPU_TENSORBOARD"] = str(tensorboard.resolve())
    return sweep(TIMED, points, store, retry, progress, hook, environment, company, bar)
