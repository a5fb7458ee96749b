"""Measure between hosts in one command; Records that exist are not measured again.

    python -m multigpu hosts --parts growth,latency --budget-s 600

The hosts are network namespaces of this machine with links of limited bandwidth (`hosts.namespaces`), which needs root and iproute2.
Bad input ends with exit code 2 and one sentence.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from multigpu import paths
from multigpu.collectives.experiment import measure as measure_collectives
from multigpu.collectives.record import CollectiveStore
from multigpu.collectives.run import CollectiveRun
from multigpu.command import Parser, add_usual, answered
from multigpu.hosts.cluster import slug
from multigpu.hosts.grid import PARTS, STUDY, Part, find_parts
from multigpu.hosts.namespaces import Hosts, why_not
from multigpu.hosts.spread import Spread
from multigpu.measure.launch import measure
from multigpu.measure.machine import framework_version
from multigpu.measure.point import Point
from multigpu.measure.summary import LEFT, Summary
from multigpu.record import RecordStore
from multigpu.run import Run


def measure_parts(
    parts: Sequence[Part],
    store: CollectiveStore,
    budget_s: float,
    repeats: int = 1,
    retry: Sequence[str] = (),
    progress: bool = True,
) -> dict[str, str]:
    """What became of each part, in words. A part may use what those before it left of the budget.

    Raises:
        ValueError: hosts cannot be made here, PyTorch is missing, or the folder cannot be written.
    """
    if why_not():
        raise ValueError(f"several hosts cannot be made here: {why_not()}")
    if framework_version("torch") == "none":
        raise ValueError("PyTorch is not installed here: see `python -m multigpu doctor`")
    until, found = time.monotonic() + budget_s, {}
    for part in parts:
        left = until - time.monotonic()
        if left <= 0:
            found[part.name] = LEFT
            continue
        timed = [run for run in part.runs if isinstance(run, Run)]
        if timed:
            found[part.name] = str(
                measure_steps(part, timed, RecordStore(store.root / paths.HOSTS_RUNS.name), left, repeats, retry, progress)
            )
            continue
        runs = [run for run in part.runs if isinstance(run, CollectiveRun)]
        with Hosts(part.hosts, part.rate_mbit) as hosts:
            spread = Spread(hosts, part.per_host)
            found[part.name] = str(measure_collectives(runs, store, left, repeats, retry, progress, spread, part.timeout_s))
    return found


def measure_steps(
    part: Part, runs: Sequence[Run], store: RecordStore, budget_s: float, repeats: int, retry: Sequence[str] = (), progress: bool = True
) -> Summary:
    """Measure in order what has no Record, for at most about `budget_s` seconds: every Run on as many hosts as it has devices.

    A Run whose framework is not installed is left out, and the summary says so.
    """
    began, summary = time.monotonic(), Summary()
    for run in runs:
        if framework_version(run.framework) == "none":
            summary.troubles.append(f"left out: {run.label()}: {run.framework} is not installed here")
        elif time.monotonic() - began > budget_s:
            summary.statuses[LEFT] += repeats
        else:
            with Hosts(run.devices, part.rate_mbit) as hosts:
                points = [Point(run, repeat, timeout_s=part.timeout_s) for repeat in range(repeats)]
                spread = Spread(hosts, part.per_host, slug(hosts.description.partition(",")[0]))
                summary.add(measure(points, store, retry, progress, company=spread))
    summary.wall_s = time.monotonic() - began
    return summary


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="multigpu hosts", description="Time all-reduces and training steps between hosts made on this machine.")
    parser.add_argument("--parts", help=f"among {', '.join(PARTS)} (default: {','.join(STUDY)})")
    add_usual(parser, "--budget-s", "--repeats", "--retry", "--dry-run", "--quiet", budget_s=900.0)
    parser.add_argument("--out", default=str(paths.HOSTS), help="folder of the Records (default: data/hosts)")
    return parser


@answered
def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = _parser().parse_args(words)
    parts = find_parts(arguments.parts.split(",") if arguments.parts else ())
    if arguments.dry_run:
        for part in parts:
            print(f"{part.name}: {part.hosts} hosts of {part.per_host}, {part.rate_mbit:g} Mbit/s, about {part.cost_s:.0f} s")
            print("\n".join(f"  {run.label()}" for run in part.runs))
        return 0
    store = CollectiveStore(Path(arguments.out))
    found = measure_parts(parts, store, arguments.budget_s, arguments.repeats, arguments.retry, not arguments.quiet)
    print("\n".join(f"{name}: {text}" for name, text in found.items()))
    return 0
