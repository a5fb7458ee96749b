"""Measure all-reduces that have no Record yet: one launch of processes for each number of devices, fresh ones after a failure."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

from tqdm.auto import tqdm

from multigpu.collectives.launch import Launch
from multigpu.collectives.plan import CollectivePlan, Item, make_record
from multigpu.collectives.record import CollectiveStore, collective_key
from multigpu.collectives.run import CollectiveRun
from multigpu.hosts.spread import Spread
from multigpu.measure.launch import Summary
from multigpu.measure.machine import Machine, framework_version, gpu_count, this_machine
from multigpu.measure.memory import scratch_folder
from multigpu.measure.plan import MAX_STARTS as A_RUNS_STARTS
from multigpu.measure.turn import turn
from multigpu.record import Status

MOST_KILLS = A_RUNS_STARTS
"""A Run whose processes were killed so often is given up."""

MAX_STARTS = 12
"""Launches of one number of devices: after a failure that may have left ranks out of step, fresh processes take over."""


def missing_items(
    runs: Sequence[CollectiveRun], repeats: int, store: CollectiveStore, retry: Sequence[str], machine: Machine | None = None
) -> list[Item]:
    """What has no Record yet, in order, every Run once before any is repeated."""
    items, name = [], (machine or this_machine()).name
    for repeat in range(repeats):
        for run in runs:
            key = collective_key(run, repeat, name, framework_version("torch"))
            known = store.find(name, key)
            if known is None or known.status in retry:
                items.append(Item(run=run, repeat=repeat, attempt=store.next_attempt(name, key)))
    return items


def measure(
    runs: Sequence[CollectiveRun],
    store: CollectiveStore,
    budget_s: float,
    repeats: int = 1,
    retry: Sequence[str] = (),
    progress: bool = True,
    spread: Spread | None = None,
    timeout_s: float = 60.0,
) -> Summary:
    """Measure in order what has no Record, for at most about `budget_s` seconds; the largest number of devices comes first.

    A launch may use an equal share of what is left; what it leaves over passes on.

    Args:
        spread: hosts over which the processes are dealt out (None: all on this one).
        timeout_s: for one Run, its checks included, after which a hang is taken for granted.

    Raises:
        ValueError: more GPUs or processes are asked for than there are, PyTorch is missing, or the folder cannot be written.
    """
    began = time.time()
    for run in runs:
        check_machine(run)
    store.check_writable(this_machine().name)
    summary = Summary()
    held = contextlib.ExitStack()
    scratch = held.enter_context(scratch_folder("multigpu-collectives-"))
    launches: list[Launch] = []
    bar = tqdm(total=len(runs) * repeats, unit="run", disable=not progress, smoothing=0.1)
    try:
        plans = []
        for devices in sorted({run.devices for run in runs}, reverse=True):
            chosen = [run for run in runs if run.devices == devices]
            machine = spread.machine(devices) if spread else None
            items = missing_items(chosen, repeats, store, retry, machine)
            summary.reused += len(chosen) * repeats - len(items)
            if items:
                plans.append(
                    CollectivePlan(
                        items=items,
                        devices=devices,
                        cuda=items[0].run.device_type == "cuda",
                        records=store.root.resolve(),
                        scratch=scratch / f"{devices}.0",
                        launch_id=uuid.uuid4().hex[:12],
                        timeout_s=timeout_s,
                        **_where(spread, machine),
                    )
                )
        bar.update(summary.reused)
        if plans:
            held.enter_context(turn())
            began = time.time()  # a wait for the machine is not part of the budget
        launches += [_launched(plan, spread) for plan in plans]
        for launch in launches:
            launch.wait_until_ready()
        for index in range(len(plans)):
            left = began + budget_s - time.time()
            _finish(launches, index, time.time() + left / (len(plans) - index), store, summary, bar)
    finally:
        for launch in launches:
            launch.end()
        bar.close()
        held.close()
        summary.wall_s = time.time() - began
    return summary


def _where(spread: Spread | None, machine: Machine | None) -> dict[str, Any]:
    """What a plan says of several hosts."""
    return {"address": spread.address, "machine": machine, "interface": spread.interface} if spread else {}


def _launched(plan: CollectivePlan, spread: Spread | None) -> Launch:
    return Launch(plan, spread.prefix, spread.hosts.environment) if spread else Launch(plan)


def _finish(launches: list[Launch], index: int, deadline: float, store: CollectiveStore, summary: Summary, bar: tqdm) -> None:
    """One launch to its end; if it fails, what it was at gets the failure as its Record and fresh processes do the rest."""
    for start in range(MAX_STARTS):
        launch = launches[index]
        if time.time() >= deadline:
            return
        launch.wait_until_ready()
        launch.go(deadline)
        while True:
            over = launch.ended()
            for event in launch.events():
                _show(event, summary, bar)
            if over:
                break
            if time.time() > deadline + 2 * launch.plan.timeout_s:  # beyond every time-out of its own
                launch.end()
            time.sleep(0.1)
        if not launch.failed:
            return
        rest = _after_failure(launch, store, summary, bar)
        if not rest or start + 1 == MAX_STARTS:
            return
        plan = launch.plan.model_copy(update={"items": rest, "scratch": launch.plan.scratch.with_suffix(f".{start + 1}")})
        launches[index] = Launch(plan, launch.prefix, launch.extra)


def _after_failure(launch: Launch, store: CollectiveStore, summary: Summary, bar: tqdm) -> list[Item]:
    """Record why the launch died, unless one of its processes has; returns what is left to do, without the method that failed."""
    # what the others say after a process was killed is an echo
    killed = "; ".join(f"process {rank} was killed by signal {number}" for rank, number in launch.killed.items())
    current = launch.plan.scratch / "current"
    if not current.exists():
        summary.troubles.append(f"processes of {launch.plan.devices} devices did not start: {killed or launch.last_words()}")
        return []
    index = int(current.read_text())
    item = launch.plan.items[index]
    name = (launch.plan.machine or this_machine()).name
    known = store.find(name, collective_key(item.run, item.repeat, name, framework_version("torch")))
    if known is None or known.attempt < item.attempt:
        kills = launch.plan.scratch.parent / f"{collective_key(item.run, item.repeat, name, framework_version('torch'))}.killed"
        if launch.killed:
            with kills.open("a") as noted:
                noted.write("x")
            if len(kills.read_text()) < MOST_KILLS:  # as everywhere: whoever killed it may have meant another process
                return launch.plan.items[index:]
        fault = launch.plan.scratch / f"{index}.fault"
        status: Status = "failed"
        reason = killed or launch.last_words()
        if not killed and fault.exists() and (text := fault.read_text()):
            status, reason = json.loads(text)
        store.write(make_record(item, launch.plan.launch_id, status, reason, None, launch.plan.machine))
        _show({"event": "done", "label": item.run.label(), "status": status, "reason": reason}, summary, bar)
    failed = (item.run.method, item.run.execution)
    return [left for left in launch.plan.items[index + 1 :] if (left.run.method, left.run.execution) != failed]


def _show(event: dict[str, Any], summary: Summary, bar: tqdm) -> None:
    if event["event"] == "start":
        bar.set_description(event["label"])
        return
    bar.update(1)
    if event["event"] == "skip":
        summary.statuses["left for a longer budget"] += 1
        return
    summary.statuses[event["status"]] += 1
    if event["status"] != "ok":
        summary.troubles.append(f"{event['status']}: {event['label']}: {event['reason']}")


def check_machine(run: CollectiveRun) -> None:
    """Refuse what this machine cannot run.

    Raises:
        ValueError: naming how many devices were asked for and how many there are.
    """
    if run.device_type == "cuda" and run.devices > gpu_count():
        raise ValueError(f"{run.devices} GPUs were asked for and this machine has {gpu_count()}: choose fewer devices or --device-type cpu")
    if framework_version("torch") == "none":
        raise ValueError("PyTorch is not installed here: see `python -m multigpu doctor`")
