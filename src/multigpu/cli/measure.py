"""The commands `measure`, `study` and `ceilings`: which Runs are meant, what a budget allows of
them, and how they are measured.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from multigpu import paths
from multigpu.build import build_run
from multigpu.cli.command import parse_counts
from multigpu.grids import default_grid, find_grid
from multigpu.grids.planned import Planned, affordable, cost_s, having, pace, points
from multigpu.lazy import lazy
from multigpu.machine.ceilings import measure_ceilings
from multigpu.machine.machine import gpu_count, this_machine
from multigpu.records.record import RecordStore
from multigpu.runner.experiment import print_trials
from multigpu.runner.hosts.launching import on_hosts
from multigpu.runner.lanes import lanes_of, measure_shared, sharing_words
from multigpu.runner.point import Point, records_here
from multigpu.runner.sweep import measure
from multigpu.spec.parse import parse_fields
from multigpu.workloads.own.description import know
from multigpu.writing import naming


def store_of(arguments: argparse.Namespace) -> RecordStore:
    """The Records that `--records` names, or the study's; of a user's own model, with the jobs that
    lie beside them.
    """
    root = paths.kind_in(Path(arguments.records)) if arguments.records else paths.RUNS
    if (jobs := root.resolve().parent / "jobs").is_dir():
        know(jobs)
    return RecordStore(root)


def read_from(arguments: argparse.Namespace) -> RecordStore:
    """As `store_of`, to read what is there; a ValueError if a folder that was named is not there:
    it would pass for an empty one.
    """
    for option in ("records", "hosts", "synchrony", "training"):
        named = getattr(arguments, option, None)
        if named and named != str(getattr(paths, option.upper(), "")) and not Path(named).is_dir():
            raise ValueError(f"--{option} {named}: there is no such folder")
    return store_of(arguments)


def ceilings_command(arguments: argparse.Namespace) -> int:
    """Measure what this machine can do at best."""
    store = store_of(arguments)
    store.check_writable()
    print(f"written to {measure_ceilings(store.root)}")
    return 0


def study_command(arguments: argparse.Namespace) -> int:
    """Measure the default grid, then render: the notebooks find every Record there."""
    paths.check_checkout("the study")
    planned = find_grid(arguments.grid or default_grid(), parse_counts(arguments.devices))
    print(
        f"measuring {len(points(planned))} Runs on {this_machine().name}: at most about"
        f" {cost_s(planned) / 60:.0f} minutes",
        flush=True,
    )
    print(measure(points(planned), store_of(arguments)), flush=True)
    return lazy("multigpu.report.site:report_command")(arguments)


def measure_command(arguments: argparse.Namespace) -> int:
    """Measure one Run, or grids; the exit code."""
    if arguments.share and (arguments.nnodes != 1 or arguments.rendezvous):
        raise ValueError(
            "--share makes lanes of one machine and cannot be used with several hosts: leave out"
            " --nnodes and --rendezvous"
        )
    for option in ("traces", "tensorboard") if arguments.share else ():
        if getattr(arguments, option):
            raise ValueError(
                f"--{option} watches Runs that have the machine to themselves: leave it or"
                " --share out"
            )
    if arguments.fields and not arguments.grid:
        fields = {"device_type": "cuda" if gpu_count() else "cpu", **parse_fields(arguments.fields)}
        run = build_run(**fields)
        chosen = [
            Point(run, repeat, timeout_s=arguments.timeout)
            for repeat in range(arguments.repeats or 1)
        ]
        costs = {}
    else:
        grids = find_grid(arguments.grid or default_grid(), parse_counts(arguments.devices))
        planned = having(grids, parse_fields(arguments.fields))
        if arguments.repeats:
            planned = [entry.repeated(arguments.repeats) for entry in planned]
        chosen = points(planned) if arguments.budget_s is None else _affordable(arguments, planned)
        if arguments.budget_s is None:
            runs = len({entry.run.digest for entry in planned})
            print(
                f"{len(chosen)} measurements of {runs} Runs; at most about"
                f" {cost_s(planned) / 60:.0f} minutes",
                flush=True,
            )
        costs = {entry.run.digest: entry.cost_s for entry in planned}

    if arguments.share:
        print(sharing_words(chosen), flush=True)
    if arguments.forecast:
        table = lazy("multigpu.analysis.expected_many:forecasts")(
            store_of(arguments).root, [point.run for point in chosen]
        )
        with naming(arguments.forecast):
            arguments.forecast.parent.mkdir(parents=True, exist_ok=True)
            table.to_csv(arguments.forecast, index=False, float_format="%.6g")
        print(f"{arguments.forecast}: {len(table)} forecasts, none a measurement")
        return 0
    if arguments.dry_run:
        print_trials(chosen)
        return 0
    if arguments.traces:
        os.environ["MULTIGPU_TRACES"] = str(Path(arguments.traces).resolve())
    if arguments.share:
        price = (lambda point: costs[point.run.digest]) if costs else None
        shared = measure_shared(
            chosen, store_of(arguments), arguments.retry, not arguments.quiet, cost_s=price
        )
        print(shared)
        return shared.exit_code
    store, progress = store_of(arguments), not arguments.quiet
    done = on_hosts(
        arguments,
        lambda hosts: measure(
            chosen, store, arguments.retry, progress, None, arguments.tensorboard, hosts
        ),
    )
    return done.exit_code if done else 0


def _affordable(arguments: argparse.Namespace, planned: Sequence[Planned]) -> list[Point]:
    every = points(planned)
    records = records_here(every, store_of(arguments))
    known = {(one.run, one.repeat) for one in records if one.status not in arguments.retry}
    spent_s = {(one.run, one.repeat): one.measurement.total_s for one in records if one.measurement}
    learned = pace(planned, spent_s)
    chosen = affordable(
        planned, known, arguments.budget_s, learned, lanes_of if arguments.share else lambda run: 1
    )
    as_told = "" if learned is None else f"; they take {learned:.2f} of what the grid says"
    print(
        f"{arguments.budget_s} s allow {len(chosen)} of {len(every)} measurements"
        f" ({len(known)} are known{as_told})",
        flush=True,
    )
    return chosen
