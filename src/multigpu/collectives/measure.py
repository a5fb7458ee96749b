"""Measure all-reduces in one command; Records that exist are not measured again.

    python -m multigpu.collectives.measure --devices 2,4 --budget-s 120 --out data/collectives

Starts one process a device, all on this machine, which end with this one. The most informative points come first, so whatever the
budget, what was measured tells most. Bad input ends with exit code 2 and one sentence.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from tqdm.auto import tqdm

from multigpu import paths
from multigpu.collectives.launch import Launch
from multigpu.collectives.plan import CollectivePlan, Item, make_record
from multigpu.collectives.record import CollectiveStore, collective_key
from multigpu.collectives.run import CollectiveRun, DeviceType, parse_size, runs_in_order
from multigpu.measure.launch import Summary
from multigpu.measure.machine import framework_version, gpu_count, this_machine
from multigpu.record import Status

MAX_STARTS = 12
"""Launches of one number of devices: after a failure that may have left ranks out of step, fresh processes take over."""


def missing_items(runs: Sequence[CollectiveRun], repeats: int, store: CollectiveStore, retry: Sequence[str]) -> list[Item]:
    """What has no Record yet, in order, every Run once before any is repeated."""
    items = []
    for repeat in range(repeats):
        for run in runs:
            key = collective_key(run, repeat, this_machine().name, framework_version("torch"))
            known = store.find(this_machine().name, key)
            if known is None or known.status in retry:
                items.append(Item(run=run, repeat=repeat, attempt=known.attempt + 1 if known else 0))
    return items


def measure(
    runs: Sequence[CollectiveRun],
    store: CollectiveStore,
    budget_s: float,
    repeats: int = 1,
    retry: Sequence[str] = (),
    progress: bool = True,
) -> Summary:
    """Measure in order what has no Record, for at most about `budget_s` seconds; the largest number of devices comes first.

    A launch may use an equal share of what is left; what it leaves over passes on.

    Raises:
        ValueError: more GPUs or processes are asked for than there are, PyTorch is missing, or the folder cannot be written.
    """
    began = time.time()
    for run in runs:
        check_machine(run)
    store.check_writable()
    summary = Summary()
    scratch = Path(tempfile.mkdtemp(prefix="multigpu-collectives-"))
    launches: list[Launch] = []
    bar = tqdm(total=len(runs) * repeats, unit="run", disable=not progress, smoothing=0.1)
    try:
        plans = []
        for devices in sorted({run.devices for run in runs}, reverse=True):
            chosen = [run for run in runs if run.devices == devices]
            items = missing_items(chosen, repeats, store, retry)
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
                    )
                )
        bar.update(summary.reused)
        launches += [Launch(plan) for plan in plans]
        for launch in launches:
            launch.wait_until_ready()
        for index in range(len(plans)):
            left = began + budget_s - time.time()
            _finish(launches, index, time.time() + left / (len(plans) - index), store, summary, bar)
    finally:
        for launch in launches:
            launch.end()
        bar.close()
        shutil.rmtree(scratch, ignore_errors=True)
        summary.wall_s = time.time() - began
    return summary


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
        launches[index] = Launch(plan)


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
    key = collective_key(item.run, item.repeat, this_machine().name, framework_version("torch"))
    known = store.find(this_machine().name, key)
    if known is None or known.attempt < item.attempt:
        fault = launch.plan.scratch / f"{index}.fault"
        status: Status = "failed"
        reason = killed or launch.last_words()
        if not killed and fault.exists() and (text := fault.read_text()):
            status, reason = json.loads(text)
        store.write(make_record(item, launch.plan.launch_id, status, reason, None))
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
    parser = argparse.ArgumentParser(prog="multigpu.collectives.measure", description="Time all-reduces of this machine.")
    parser.add_argument("--sizes", help="bytes, such as 4,64K,1M,1G (default: powers of 4 to 1 GiB, on CPUs to 16 MiB)")
    parser.add_argument("--devices", default="2", help="numbers of processes, such as 2,4")
    parser.add_argument("--methods", help="algorithms and libraries by name (default: all)")
    parser.add_argument("--executions", help="eager, captured or both (default: all that exist)")
    parser.add_argument("--dtype", default="fp32", help="fp32 (default) or bf16")
    parser.add_argument("--device-type", choices=("cuda", "cpu"), help="default: cuda where there is a GPU")
    parser.add_argument("--repeats", type=int, default=1, help="measurements of every Run")
    parser.add_argument("--budget-s", type=float, default=120.0, help="seconds after which nothing more is started")
    parser.add_argument("--retry", action="append", default=[], choices=get_args(Status), help="measure again what ended so")
    parser.add_argument("--out", default=str(paths.COLLECTIVES), help="folder of the Records (default: data/collectives)")
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
        if not text.strip().isdigit():
            raise ValueError(f"devices {text!r} is not a positive integer: give counts such as 2,4")
        lists = {
            name: (getattr(arguments, name) or "").split(",") if getattr(arguments, name) else [] for name in ("methods", "executions")
        }
        runs += runs_in_order(int(text), device_type, sizes, dtype=arguments.dtype, **lists)
    return list(dict.fromkeys(runs))


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = _parser().parse_args(words)
    try:
        runs = chosen_runs(arguments)
        if arguments.dry_run:
            print("\n".join(run.label() for run in runs))
            return 0
        print(f"{len(runs) * arguments.repeats} measurements on {this_machine().name}, for at most {arguments.budget_s:.0f} s", flush=True)
        summary = measure(
            runs, CollectiveStore(Path(arguments.out)), arguments.budget_s, arguments.repeats, arguments.retry, not arguments.quiet
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
