"""Measure all-reduces in one command; Records that exist are not measured again.

    python -m multigpu.collectives.measure --devices 2,4 --budget-s 120 --out data/collectives

Starts one process a device, all on this machine, which end with this one. With `--link-mbit` each runs on a host of its own, or
`--per-host` of them: network namespaces whose links carry so much (`hosts.namespaces`). The most informative points come first, so
whatever the budget, what was measured tells most. Bad input ends with exit code 2 and one sentence.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from tqdm.auto import tqdm

from multigpu import paths
from multigpu.arguments import Parser, count, seconds
from multigpu.collectives import algorithms
from multigpu.collectives.launch import Launch
from multigpu.collectives.plan import CollectivePlan, Item, make_record
from multigpu.collectives.record import CollectiveStore, collective_key
from multigpu.collectives.run import CollectiveRun, DeviceType, build_collective_run, parse_size, runs_in_order
from multigpu.hosts.namespaces import Hosts, why_not
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


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="multigpu collectives", description="Time all-reduces of this machine.")
    parser.add_argument("--sizes", help="bytes, such as 4,64K,1M,1G (default: powers of 4 to 1 GiB, on CPUs to 16 MiB)")
    parser.add_argument("--devices", default="2", help="numbers of processes, such as 2,4")
    parser.add_argument("--methods", help="algorithms and libraries by name (default: all)")
    parser.add_argument("--executions", help="eager, captured or both (default: all that exist)")
    parser.add_argument("--dtype", default="fp32", help="fp32 (default) or bf16")
    parser.add_argument("--device-type", choices=("cuda", "cpu"), help="default: cuda where there is a GPU")
    parser.add_argument("--repeats", type=count(), default=1, help="measurements of every Run")
    parser.add_argument("--budget-s", type=seconds, default=120.0, help="seconds after which nothing more is started")
    parser.add_argument(
        "--link-mbit", type=float, metavar="R", help="put the processes on hosts joined by links of so many Mbit/s (needs root)"
    )
    parser.add_argument("--per-host", type=count(), default=1, help="processes on each of these hosts (default: 1)")
    parser.add_argument(
        "--delay-us", type=count(0, 10**9), default=0, help="slept before every exchange of messages, as a distant host's latency"
    )
    parser.add_argument(
        "--compute-ms", type=count(0, 10**6), default=0, help="slept before every timed call, where a training step would compute"
    )
    parser.add_argument("--retry", action="append", default=[], choices=get_args(Status), help="measure again what ended so")
    parser.add_argument("--out", help="folder of the Records (default: data/collectives, with --link-mbit data/hosts)")
    parser.add_argument("--dry-run", action="store_true", help="list what would be measured, in order")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def chosen_runs(arguments: argparse.Namespace) -> list[CollectiveRun]:
    """The Runs that a command line asks for.

    Raises:
        ValueError: an argument means nothing or a Run cannot work.
    """
    device_type: DeviceType = arguments.device_type or ("cuda" if gpu_count() else "cpu")
    sizes = [parse_size(text) for text in arguments.sizes.split(",")] if arguments.sizes else []
    runs = []
    for text in arguments.devices.split(","):
        if not text.strip().isdecimal():
            raise ValueError(f"devices {text!r} is not a positive integer: give counts such as 2,4")
        lists = {
            name: (getattr(arguments, name) or "").split(",") if getattr(arguments, name) else [] for name in ("methods", "executions")
        }
        chosen = runs_in_order(int(text), device_type, sizes, dtype=arguments.dtype, **lists)
        runs += [build_collective_run(**run.model_dump() | slept(arguments, run.method)) for run in chosen]
    return list(dict.fromkeys(runs))


def slept(arguments: argparse.Namespace, method: str) -> dict[str, int]:
    """The fields of a Run of this method that say what is slept; a library's messages cannot be delayed."""
    return {"delay_us": arguments.delay_us if method in algorithms() else 0, "compute_ms": arguments.compute_ms}


@contextlib.contextmanager
def spread_for(runs: Sequence[CollectiveRun], link_mbit: float | None, per_host: int) -> Iterator[Spread | None]:
    """The hosts that a command line asks for, for as long as they are needed.

    Raises:
        ValueError: hosts cannot be made here, or a Run is for GPUs.
    """
    if link_mbit is None:
        yield None
        return
    if why_not():
        raise ValueError(f"no hosts for --link-mbit {link_mbit:g}: {why_not()}")
    if per_host < 1:
        raise ValueError(f"--per-host {per_host} is not a positive integer")
    if any(run.device_type == "cuda" for run in runs):
        raise ValueError(f"--link-mbit {link_mbit:g} puts CPU processes on hosts of their own: add --device-type cpu")
    with Hosts(max(-(-run.devices // per_host) for run in runs), link_mbit) as hosts:
        yield Spread(hosts, per_host)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = _parser().parse_args(words)
    try:
        runs = chosen_runs(arguments)
        if arguments.dry_run:
            print("\n".join(run.label() for run in runs))
            return 0
        print(f"{len(runs) * arguments.repeats} measurements on {this_machine().name}, for at most {arguments.budget_s:.0f} s", flush=True)
        out = Path(arguments.out or (paths.COLLECTIVES if arguments.link_mbit is None else paths.HOSTS))
        with spread_for(runs, arguments.link_mbit, arguments.per_host) as spread:
            summary = measure(
                runs, CollectiveStore(out), arguments.budget_s, arguments.repeats, arguments.retry, not arguments.quiet, spread
            )
        left = len(runs) * arguments.repeats - summary.reused - sum(Counter(summary.statuses).values())
        print(f"{summary}{f'{chr(10)}{left} not reached: the same command goes on from there' if left > 0 else ''}")
        return 0
    except ValueError as error:
        print(f"multigpu: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("multigpu: stopped; what was measured is kept, and the same command goes on from there", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
