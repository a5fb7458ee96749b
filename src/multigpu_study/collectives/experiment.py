"""An all-reduce as an experiment: what a launch is told of it, its Records, and the command.
Imports no framework.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from time import monotonic
from typing import Any

from multigpu import paths
from multigpu.cli.command import answered, parse_counts
from multigpu.collectives import algorithms
from multigpu.collectives.algorithm import counted_cost
from multigpu.engines.common.session import Session
from multigpu.lazy import lazy
from multigpu.machine.machine import gpu_count, this_machine
from multigpu.records.collective import CollectiveMeasurement, CollectiveRecord, CollectiveStore
from multigpu.runner.experiment import Experiment, Trial, WorkerContext
from multigpu.runner.hosts.group import LaunchHosts
from multigpu.runner.plan import Plan
from multigpu.runner.summary import LEFT, Summary
from multigpu.runner.sweep import sweep
from multigpu.runner.timed import PASSED_OVER, check_there
from multigpu.spec.collective import ITEM_BYTES, CollectiveRun, DeviceType, size_text
from multigpu_study.collectives.order import parse_size, runs_in_order
from multigpu_study.commands import COLLECTIVES as COMMAND
from multigpu_study.commands import parsed


class CollectiveItem(Trial):
    """most_symmetric_bytes: the launch's largest message of torch's two-shot. interface: of each
    host, whose bytes are read.
    """

    run: CollectiveRun
    timeout_s: float = 60.0
    most_symmetric_bytes: int = 0
    interface: str | None = None


class Collectives(Experiment[CollectiveItem]):
    """All-reduces of one number of devices, in order, the largest number first."""

    path = "multigpu_study.collectives.experiment:COLLECTIVES"
    item = CollectiveItem
    store = CollectiveStore
    cyclic = False
    modules = ("multigpu_study.collectives.bench",)

    def __init__(self) -> None:
        # method and form of execution: its other messages are not tried
        self.failed: set[tuple[str, str]] = set()

    def open(self, item: CollectiveItem, seat: WorkerContext) -> Session:
        seat.stage("build")
        bench = lazy("multigpu_study.collectives.bench:Bench")
        return bench(item.run, item.most_symmetric_bytes, item.interface)

    def measure(
        self, item: CollectiveItem, parts: Sequence[Mapping[str, Any]], total_s: float
    ) -> CollectiveMeasurement:
        return joined(item.run, parts, total_s)

    def told(self, item: CollectiveItem, measured: CollectiveMeasurement) -> str:
        return f"{size_text(round(item.run.bytes / min(measured.time_s)))}/s"

    def learn(self, item: CollectiveItem, record: CollectiveRecord) -> None:
        if record.status in ("failed", "timeout"):
            self.failed.add((item.run.method, item.run.execution))

    def passed_over(self, plan: Plan, item: CollectiveItem) -> tuple[str, str] | None:
        if (item.run.method, item.run.execution) in self.failed:
            return PASSED_OVER, f"{item.run.method} has failed"
        return (LEFT, "") if plan.until_s is not None and monotonic() >= plan.until_s else None

    def check(self, item: CollectiveItem, company: LaunchHosts | None) -> None:
        check_there(item.run, company)

    def launch_of(self, item: CollectiveItem) -> int:
        return -item.run.devices


COLLECTIVES = Collectives()


def measure(
    runs: Sequence[CollectiveRun],
    store: CollectiveStore,
    budget_s: float,
    repeats: int = 1,
    retry: Sequence[str] = (),
    progress: bool = True,
    spread: LaunchHosts | None = None,
    timeout_s: float = 60.0,
    hook: str | None = None,
) -> Summary:
    """Measure what has no Record, every Run once before any is repeated; none begins after
    `budget_s` seconds. Raises as `sweep`.
    spread: hosts over which the processes are dealt out (None: all on this one). timeout_s: for one
        Run, its checks included.
    """
    most = max((run.bytes for run in runs if run.method == "two_shot"), default=0)
    points = [
        CollectiveItem(
            run=run,
            repeat=repeat,
            timeout_s=timeout_s,
            most_symmetric_bytes=most,
            interface=spread.interface if spread else None,
        )
        for repeat in range(repeats)
        for run in runs
    ]
    return sweep(
        COLLECTIVES, points, store, retry, progress, hook, company=spread, budget_s=budget_s
    )


@answered
def main(words: Sequence[str] | None = None) -> int:
    """`python -m multigpu collectives --devices 2,4 --budget-s 120`; returns the exit code."""
    arguments = parsed(words, COMMAND, paths.COLLECTIVES, "--out")
    device_type: DeviceType = arguments.device_type or ("cuda" if gpu_count() else "cpu")
    sizes = [parse_size(text) for text in arguments.sizes.split(",")] if arguments.sizes else []
    methods, executions = (
        chosen.split(",") if chosen else [] for chosen in (arguments.methods, arguments.executions)
    )
    counts = parse_counts(arguments.devices)
    runs = list(
        dict.fromkeys(
            run
            for count in counts
            for run in runs_in_order(count, device_type, sizes, methods, executions)
        )
    )
    if arguments.dry_run:
        print("\n".join(run.label() for run in runs))
        return 0
    print(
        f"{len(runs) * arguments.repeats} measurements on {this_machine().name}, for at most"
        f" {arguments.budget_s:.0f} s",
        flush=True,
    )
    store = CollectiveStore(arguments.out)
    summary = measure(
        runs, store, arguments.budget_s, arguments.repeats, arguments.retry, not arguments.quiet
    )
    print(summary)
    return 0


def joined(
    run: CollectiveRun, parts: Sequence[Mapping[str, Any]], total_s: float
) -> CollectiveMeasurement:
    """Combine all ranks' parts."""
    samples = [
        max(part["times"][index] for part in parts) / run.calls for index in range(run.samples)
    ]
    carried = [part["interface"] for part in parts if part.get("interface")]
    found: dict[str, Any] = {
        "time_s": [float(f"{seconds:.6g}") for seconds in samples],
        "total_s": round(total_s, 3),
        "interface_bytes": carried if len(carried) == len(parts) else None,
    }
    if run.method in algorithms():
        links = Counter(
            {
                (rank, int(target)): count
                for rank, part in enumerate(parts)
                for target, count in part["counted"].items()
            }
        )
        predicted = algorithms()[run.method].cost(run.elements, ITEM_BYTES, run.devices)
        # messages' order is not observed here
        counted = counted_cost(links, predicted.latency_terms)
        found |= {"predicted": asdict(predicted), "counted": asdict(counted)}
        if counted.total_bytes != predicted.total_bytes:
            found["flags"] = [
                f"{counted.total_bytes:.0f} bytes were sent and {predicted.total_bytes:.0f}"
                " predicted"
            ]
    return CollectiveMeasurement.model_validate(found)
