"""Measure Runs: one launch for many, resumed by Records, watched by a progress bar. Imports no framework."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from multigpu.hosts.launching import LOOPBACK, Company, check_host, check_run, end, libraries_environment
from multigpu.inputs.check import check_inputs
from multigpu.measure import private_network
from multigpu.measure.bar import Bar, new_bar
from multigpu.measure.ladder import ascending, with_smaller
from multigpu.measure.lane import this_lane
from multigpu.measure.machine import cores_here, framework_version, gpu_count, source_state, this_machine, versions
from multigpu.measure.memory import memory_folder, scratch_folder
from multigpu.measure.plan import Item, Journal, Plan, find_record
from multigpu.measure.point import Point, launch_of
from multigpu.measure.process import NO_KERAS
from multigpu.measure.summary import Summary
from multigpu.measure.timing import TIMING_VERSION
from multigpu.measure.turn import turn
from multigpu.record import RecordStore
from multigpu.run import Run

# NVLink multicast is off for every process: a program that misuses it can put all GPUs of a host out of service
SAFE = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


def listens_everywhere(run: Run) -> bool:
    """Whether a Run's processes listen on all interfaces of their host, whatever they are told: TensorFlow's servers do."""
    return run.framework == "tensorflow" and run.processes == "per_device"


def check_devices(run: Run) -> None:
    """Refuse what this machine cannot run.

    Raises:
        ValueError: naming how many devices were asked for and how many there are.
    """
    available = gpu_count()
    if run.device_type == "cuda" and run.devices > available:
        allowed = f"choose at most {available} or device_type 'cpu'" if available else "choose device_type 'cpu'"
        raise ValueError(f"{run.devices} GPUs were asked for and this machine has {available}: {allowed}")
    check_host(run, run.devices, available)
    if listens_everywhere(run):
        private_network.check_private(f"TensorFlow over several processes ({run.label()})")


def make_plan(
    points: Sequence[Point],
    records: Path,
    scratch: Path,
    memory: Path,
    retry: Sequence[str] = (),
    hook: str | None = None,
    tensorboard: Path | None = None,
) -> tuple[Plan, int]:
    """The plan of one launch without what has a Record already, and how many were left out.

    retry: statuses whose Runs are measured again, as a new attempt beside the old Record.
    """
    framework = points[0].run.framework
    # one process for all devices, or one whose session starts the others
    alone = framework == "tensorflow" or points[0].run.processes == "one"
    plan = Plan(
        items=[],
        program="solo" if alone else "worker",
        workers=1,
        machine=this_machine().name,
        versions=versions(),
        framework_version=framework_version(framework),
        timing_version=TIMING_VERSION,
        records=records,
        scratch=scratch,
        memory=memory,
        launch_id=uuid.uuid4().hex[:12],
        hook=hook,
        environment={name: str(value) for name, value in (("MULTIGPU_HOOK", hook), ("MULTIGPU_TENSORBOARD", tensorboard)) if value}
        | points[0].run.environment,
    )
    items = []
    for item in with_smaller([Item(run=point.run, repeat=point.repeat, timeout_s=point.timeout_s) for point in points]):
        known = find_record(plan, item)
        if known is None or known.status in retry:
            items.append(item.model_copy(update={"attempt": RecordStore(plan.records).next_attempt(plan.machine, plan.key(item))}))
    # interleaved at random, so that a drift of the machine does not look like a placement; grouped by
    # the devices used within a shuffled order of them, since a new group costs as much as a short Run
    order = random.Random(plan.launch_id)
    order.shuffle(items)
    groups = sorted({item.run.chosen_devices for item in items})
    order.shuffle(groups)
    items.sort(key=lambda item: groups.index(item.run.chosen_devices))
    items = ascending(items)
    workers = 1 if alone else max((item.run.devices for item in items), default=1)
    return plan.model_copy(update={"items": items, "workers": workers}), len(points) - len(items)


def measure(
    points: Sequence[Point],
    store: RecordStore,
    retry: Sequence[str] = (),
    progress: bool = True,
    hook: str | None = None,
    tensorboard: Path | None = None,
    company: Company | None = None,
    bar: Bar | None = None,
) -> Summary:
    """Measure every point that has no Record yet; whatever happens on the way, what was measured stays.

    company: the hosts of this launch, of which this one is the first.
    tensorboard: a folder for TensorBoard's logs of what is measured, one folder a Run in it; TensorFlow in one process only.
    bar: told of what is done in place of a progress bar of this sweep's own.

    Raises:
        ValueError: a point cannot run on this machine, its input cannot be read, or Records cannot be written; nothing was started.
        RuntimeError: the launcher itself died; what it had measured is kept and the same call goes on from there.
    """
    for point in points:
        if company:
            check_run(point.run, company.cluster)
        else:
            check_devices(point.run)
        if tensorboard and (point.run.framework, point.run.processes) != ("tensorflow", "one"):
            raise ValueError(f"TensorBoard logs need framework=tensorflow and processes=one, which {point.run.label()} has not")
    check_inputs(point.run for point in points)
    store.check_writable(this_machine().name)
    if tensorboard:
        try:
            tensorboard.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"TensorBoard's logs cannot be written to {tensorboard}: {error.strerror}; choose another folder") from None
    summary, began = Summary(), time.monotonic()
    shown: Bar = new_bar(len(points), progress) if bar is None else bar
    held = contextlib.ExitStack()
    try:
        for launch in sorted({launch_of(p) for p in points}):
            chosen = [p for p in points if launch_of(p) == launch]
            with scratch_folder("multigpu-sweep-") as scratch, memory_folder() as memory:
                plan, reused = make_plan(chosen, store.root.resolve(), scratch, memory, retry, hook, tensorboard and tensorboard.resolve())
                summary.reused += reused
                shown.update(reused)
                if plan.items:
                    held.enter_context(turn())  # until the sweep ends
                    launch_plan(plan, shown, summary, company)
                if again := disturbed(plan, summary):
                    launch_plan(again, shown, summary, company)
    finally:
        held.close()
        if bar is None:
            shown.close()
        summary.wall_s = time.monotonic() - began
    return summary


def disturbed(plan: Plan, summary: Summary) -> Plan | None:
    """What this launch measured while others disturbed it or a GPU was throttled, to be measured once more as a new attempt; both stay.

    None where there is nothing of the kind, and in a lane: beside others everything would be told as disturbed.
    """
    if (lane := this_lane()) and lane.neighbours:
        return None
    items = []
    for item in plan.items:
        record = find_record(plan, item)
        if record and record.launch_id.startswith(plan.launch_id) and record.surroundings and (why := record.surroundings.disturbances):
            items.append(item.model_copy(update={"attempt": record.attempt + 1}))
            summary.notes.append(f"measured again: {item.run.label()}: {'; '.join(why)}")
    if not items:
        return None
    scratch = plan.scratch / "again"  # what the journal knows of the first attempt is over
    scratch.mkdir()
    return plan.model_copy(update={"items": items, "scratch": scratch, "launch_id": uuid.uuid4().hex[:12]})


def launch_environment() -> dict[str, str]:
    """What every process of a launch finds in its environment."""
    commit, clean = source_state()
    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    # workers set their own thread counts; the default of one that launchers impose would starve host placements
    return {
        **os.environ,
        **SAFE,
        "PYTHONPATH": os.pathsep.join(paths),
        "MULTIGPU_COMMIT": commit,
        "MULTIGPU_CLEAN": "1" if clean else "0",
        **NO_KERAS,
    } | ({} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(cores_here())})


def launch_plan(plan: Plan, bar: Bar, summary: Summary, company: Company | None = None) -> None:
    """Run one plan to its end, following its journal; on several hosts, again until they get through it.

    Raises:
        RuntimeError: the launcher died, or a host was lost (`HostLost`); what was measured is kept.
    """
    finished: set[int] = set()
    most = company.most_starts(plan) if company else 1
    code = 0
    for start in range(most):
        code = _launch_once(plan, bar, summary, company, finished)
        if code == 0:
            return
        if company and start + 1 < most:
            company.settle(Journal(plan))
    done = sum(summary.statuses.values())
    raise RuntimeError(
        f"the launcher ended with {code} after {done} Runs, all kept ({_last_words(plan)}); the same command goes on from there"
    )


def _launch_once(plan: Plan, bar: Bar, summary: Summary, company: Company | None, finished: set[int]) -> int:
    """One start of the plan's workers; the agent's exit code. finished: what was reported as done, of earlier starts too."""
    if company:
        plan = company.offer(plan)
    path = plan.scratch / "plan.json"
    path.write_text(plan.model_dump_json())
    journal = Journal(plan)
    seen = len(journal.progress.read_text().splitlines()) if journal.progress.exists() else 0
    alone = {} if company else libraries_environment(LOOPBACK)
    with open(plan.scratch / "agent.log", "w") as log:
        agent = subprocess.Popen(_agent(plan, path), env=launch_environment() | alone | plan.environment, stdout=log, stderr=log)
        try:
            while True:
                ended = agent.poll() is not None
                lines = journal.progress.read_text().splitlines() if journal.progress.exists() else []
                for line in lines[seen:]:
                    event = json.loads(line)
                    # a restarted launch passes over what is done and says so again
                    if event["event"] == "start" or event["index"] not in finished:
                        _show(event, plan, bar, summary)
                    if event["event"] == "done":
                        finished.add(event["index"])
                seen = len(lines)
                if sentence := journal.unwritable():
                    kept = f"{sum(summary.statuses.values())} Runs were measured and are kept"
                    raise RuntimeError(f"{sentence}; {kept}, and the same command goes on from there once there is room")
                if ended or (company and company.in_trouble()):
                    break
                time.sleep(0.1)
        finally:
            if agent.poll() is None and company:
                end(agent)
            if agent.poll() is None:
                agent.terminate()
                try:
                    agent.wait(20)
                except subprocess.TimeoutExpired:
                    agent.kill()
    return agent.returncode


def _agent(plan: Plan, path: Path) -> list[str]:
    """The command of this host's agent; what would listen on all interfaces gets a network of its own where one host is all there is."""
    hidden = plan.hosts == 1 and any(listens_everywhere(item.run) for item in plan.items) and private_network.why_not() is None
    return [*(private_network.prefix() if hidden else []), sys.executable, "-m", "multigpu.measure.agent", str(path)]


def _show(event: dict[str, object], plan: Plan, bar: Bar, summary: Summary) -> None:
    if event["event"] == "start":
        bar.set_description(str(event["label"]))
        return
    status = str(event["status"])
    summary.statuses[status] += 1
    bar.update(1)
    if status == "ok" and "units_per_s" in event:
        bar.set_postfix_str(f"{float(str(event['units_per_s'])):,.0f} {event['unit']}/s")
    elif status != "ok":
        run = plan.items[int(str(event["index"]))].run
        summary.troubles.append(f"{status}: {run.label()}: {event.get('reason', '')}")


def _last_words(plan: Plan) -> str:
    """The last line that the launcher or a worker wrote."""
    logs = [plan.scratch / "agent.log", *sorted((plan.scratch / "logs").rglob("stderr.log"))]
    lines = [line for log in logs if log.exists() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "it left no message"
