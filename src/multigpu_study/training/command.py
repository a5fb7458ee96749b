"""Train what has no Record yet: a grid, or one run by its fields; interrupted ones from their
checkpoints. Imports no framework.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from multigpu import paths
from multigpu.cli.command import answered
from multigpu.grids.planned import affordable, points
from multigpu.machine.machine import gpu_count
from multigpu.runner.experiment import print_trials
from multigpu.runner.hosts.launching import HostGroup, on_hosts
from multigpu.runner.point import known_here
from multigpu.runner.summary import Summary
from multigpu.runner.sweep import sweep
from multigpu.runner.timed import check_devices
from multigpu.spec.parse import parse_fields
from multigpu_study.commands import TRAIN, parsed
from multigpu_study.training.build import build_training_run
from multigpu_study.training.experiment import TRAINING, TrainingItem, folder_of
from multigpu_study.training.grid import GRIDS, possible_here, restricted
from multigpu_study.training.record import TrainingStore
from multigpu_study.training.run import FIELDS


def train(
    chosen: Sequence[TrainingItem],
    store: TrainingStore,
    checkpoints: Path = paths.CHECKPOINTS,
    retry: Sequence[str] = (),
    keep: bool = False,
    progress: bool = True,
    hook: str | None = None,
    company: HostGroup | None = None,
) -> Summary:
    """Train every item that has no Record yet; whatever happens on the way, Records and checkpoints
    stay. All else: as `sweep`.
    checkpoints: root of the folders of runs that checkpoint; one that is there is gone on from, one
        that cannot be used is a ValueError before anything starts. keep: leave the last checkpoint
        and the log of finished runs.
    """
    root = checkpoints.resolve()
    items = [
        item.model_copy(
            update={"folder": folder_of(root, item.training, item.repeat), "keep": keep}
        )
        for item in chosen
    ]
    return sweep(TRAINING, items, store, retry, progress, hook, company=company)


@answered
def main(words: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 1 if something did not end well, 2 for bad input."""
    names = {"grids": ", ".join(GRIDS), "checkpoints": str(paths.CHECKPOINTS)}
    arguments = parsed(words, TRAIN, paths.TRAINING, "--folder", **names)
    chosen = _chosen(arguments)
    if arguments.dry_run:
        for point in chosen:
            check_devices(point.run)
        print_trials(chosen)
        return 0
    store, places = TrainingStore(arguments.folder), arguments.checkpoints
    retry, keep, progress = arguments.retry, arguments.keep, not arguments.quiet
    summary = on_hosts(
        arguments, lambda hosts: train(chosen, store, places, retry, keep, progress, company=hosts)
    )
    return 1 if summary and summary.troubles else 0


def _chosen(arguments: argparse.Namespace) -> list[TrainingItem]:
    if arguments.fields and not arguments.grid:
        fields = {
            "device_type": "cuda" if gpu_count() else "cpu",
            **parse_fields(arguments.fields, FIELDS),
        }
        return [TrainingItem.of(build_training_run(**fields))]
    planned = restricted(
        possible_here(arguments.grid or ("training" if gpu_count() else "training_cpu")),
        parse_fields(arguments.fields, FIELDS),
    )
    if arguments.budget_s is not None:
        known = known_here(points(planned), TrainingStore(arguments.folder), arguments.retry)
        chosen = affordable(planned, known, arguments.budget_s)
    else:
        chosen = points(planned)
    costs = {entry.run.digest: entry.cost_s for entry in planned}
    minutes = sum(costs[point.training.digest] for point in chosen) / 60
    print(f"{len(chosen)} runs to train; at most about {minutes:.0f} minutes", flush=True)
    return chosen
