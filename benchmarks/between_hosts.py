"""Measure all-reduces and steps between hosts that are made on this machine.

    python -m benchmarks.between_hosts --parts growth,latency --budget-s 600

The hosts are network namespaces of this machine with links of limited bandwidth
(`benchmarks.namespaces`), which needs root and iproute2. Parts are files of the study's
`grids/hosts/`, each on hosts of its own, the most informative first. Their points have fields of a
CollectiveRun, or of a Run, and of the hosts: `per_host` processes on each and `rate_mbit`, of every
link each way.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.namespaces import Hosts, SimulatedHosts, why_not
from pydantic.fields import FieldInfo

from multigpu import paths
from multigpu.build import build_run
from multigpu.cli.command import Parser, add_records, answered, count, seconds
from multigpu.collectives import algorithms
from multigpu.grids.expand import Kind, expand
from multigpu.machine.cluster import slug
from multigpu.machine.machine import framework_version
from multigpu.records.base import STATUSES
from multigpu.records.collective import CollectiveStore
from multigpu.records.record import RecordStore
from multigpu.runner.point import Point
from multigpu.runner.summary import LEFT, Summary
from multigpu.runner.sweep import measure
from multigpu.spec.collective import CollectiveRun, methods_for
from multigpu.spec.run import Run
from multigpu.workloads import find_model
from multigpu_study.collectives.experiment import measure as measure_collectives
from multigpu_study.grids import FOLDER

PARTS = (
    "growth",
    "document_004",
    "latency",
    "document_004_apart",
    "steps",
    "growth_repeated",
    "small",
)
STUDY = PARTS[:5]
# document 004's Ethernet of 100 Gbit/s over links of 200 Mbit/s; bytes alike, in whole elements
SCALE = 500


class RunsOnHosts(NamedTuple):
    """Runs on hosts of a kind. cost_s: of one repeat of all; timeout_s: of one Run, at most."""

    name: str
    runs: tuple[CollectiveRun, ...] | tuple[Run, ...]
    per_host: int
    rate_mbit: float
    cost_s: float
    timeout_s: float

    @property
    def hosts(self) -> int:
        return max(-(-run.devices // self.per_host) for run in self.runs)


def _build(
    per_host: int, rate_mbit: float, timeout_s: float = 60.0, **fields: Any
) -> tuple[Any, dict[str, Any]]:
    run = CollectiveRun.built(**fields) if "method" in fields else build_run(**fields)
    return run, {"per_host": per_host, "rate_mbit": rate_mbit, "timeout_s": timeout_s}


def _methods() -> list[str]:
    gloo, *ours = methods_for("cpu")
    return [*ours[:2], gloo, *ours[2:]]


KIND = Kind(
    fields={
        **Run.model_fields,
        **CollectiveRun.model_fields,
        **dict.fromkeys(("per_host", "rate_mbit", "timeout_s"), FieldInfo(default=None)),
    },
    build=_build,
    lists={
        "method": {
            "every": lambda _: _methods(),
            "exact": lambda _: [
                name
                for name in _methods()
                if name in algorithms() and algorithms()[name].wire is None
            ],
        },
        "bytes": {
            "document_004": lambda _: [4 * round(find_model("nmt", "nmt004").parameters / SCALE)]
        },
    },
)


def find_parts(names: Sequence[str] = ()) -> list[RunsOnHosts]:
    """The parts of these names; the whole study without any."""
    if unknown := [name for name in names if name not in PARTS]:
        raise ValueError(f"unknown part {unknown[0]!r}: choose among {', '.join(PARTS)}")
    parts = []
    for name in names or STUDY:
        points = list(expand(FOLDER / "hosts" / f"{name}.yaml", KIND))
        parts.append(
            RunsOnHosts(
                name,
                tuple(point.run[0] for point in points),
                cost_s=points[0].settings.cost_s,
                **points[0].run[1],
            )
        )
    return parts


def measure_part(
    part: RunsOnHosts,
    store: CollectiveStore,
    budget_s: float,
    repeats: int,
    retry: Sequence[str] = (),
    progress: bool = True,
) -> Summary:
    """Measure in order what has no Record, for at most about `budget_s` seconds; each training step
    on as many hosts as it has devices.
    """
    if all(isinstance(run, CollectiveRun) for run in part.runs):
        with Hosts(part.hosts, part.rate_mbit) as hosts:
            spread = SimulatedHosts(hosts, part.per_host)
            return measure_collectives(
                part.runs,  # type: ignore[arg-type]
                store,
                budget_s,
                repeats,
                retry,
                progress,
                spread,
                part.timeout_s,
            )
    began = time.monotonic()
    summary = Summary()
    steps = RecordStore(store.root / paths.HOSTS_RUNS.name)
    for run in part.runs:
        if framework_version(run.framework) == "none":
            summary.troubles.append(
                f"left out: {run.label()}: {run.framework} is not installed here"
            )
        elif time.monotonic() - began > budget_s:
            summary.statuses[LEFT] += repeats
        else:
            with Hosts(run.devices, part.rate_mbit) as hosts:
                points = [
                    Point(run, repeat, timeout_s=part.timeout_s)  # type: ignore[arg-type]
                    for repeat in range(repeats)
                ]
                spread = SimulatedHosts(
                    hosts, part.per_host, slug(hosts.description.partition(",")[0])
                )
                summary.add(measure(points, steps, retry, progress, company=spread))
    summary.wall_s = time.monotonic() - began
    return summary


@answered
def main(words: Sequence[str] | None = None) -> int:
    """Measure the parts asked for; returns the exit code, 2 for bad input."""
    parser = Parser(prog="between_hosts", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--parts", help=f"among {', '.join(PARTS)} (default: {','.join(STUDY)})")
    parser.add_argument("--budget-s", type=seconds, default=900.0, help="seconds (default: 900)")
    parser.add_argument("--repeats", type=count(), default=1, help="of every Run (default: 1)")
    parser.add_argument(
        "--retry", action="append", default=[], choices=STATUSES, help="what ended so"
    )
    parser.add_argument("--dry-run", action="store_true", help="list what would be measured")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_records(parser, paths.HOSTS)
    arguments = parser.parse_args(words)
    parts = find_parts(arguments.parts.split(",") if arguments.parts else ())
    if arguments.dry_run:
        for part in parts:
            print(
                f"{part.name}: {part.hosts} hosts of {part.per_host}, {part.rate_mbit:g} Mbit/s,"
                f" about {part.cost_s:.0f} s"
            )
            print("\n".join(f"  {run.label()}" for run in part.runs))
        return 0
    store = CollectiveStore(arguments.records)
    if why_not():
        raise ValueError(f"several hosts cannot be made here: {why_not()}")
    if framework_version("torch") == "none":
        raise ValueError("PyTorch is not installed here: see `python -m multigpu doctor`")
    until = time.monotonic() + arguments.budget_s
    for part in parts:  # each may use what those before it left of the budget
        left = until - time.monotonic()
        asked = (arguments.repeats, arguments.retry, not arguments.quiet)
        print(
            f"{part.name}: {measure_part(part, store, left, *asked) if left > 0 else LEFT}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
