"""Train what has no Record yet: a grid, or one run by its fields; interrupted ones from their
checkpoints. Imports no framework.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from multigpu import paths
from multigpu.cli.command import answered
from multigpu.grids.planned import affordable, points
from multigpu.machine.machine import framework_version, gpu_count, this_machine
from multigpu.runner.hosts.launching import HostGroup, follow
from multigpu.runner.hosts.launching import company as company_of
from multigpu.runner.launch_environment import launch_environment
from multigpu.runner.summary import Summary
from multigpu.runner.sweep import sweep
from multigpu.runner.timed import check_devices
from multigpu.spec.parse import parse_fields
from multigpu.workloads.sources import check_inputs
from multigpu_study.commands import TRAIN, parsed
from multigpu_study.training.build import build_training_run
from multigpu_study.training.experiment import TRAINING, TrainingItem, folder_of
from multigpu_study.training.grid import GRIDS, PlannedTraining, possible_here, restricted
from multigpu_study.training.record import TrainingRecord, TrainingStore
from multigpu_study.training.run import FIELDS, TrainingRun


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
        that cannot be used is a ValueError
    before anything starts. keep: leave the last checkpoint and the log of finished runs.
    """
    root = checkpoints.resolve()
    items = [
        item.model_copy(
            update={"folder": folder_of(root, item.training, item.repeat), "keep": keep}
        )
        for item in chosen
    ]
    return sweep(TRAINING, items, store, retry, progress, hook, company=company)


def known_here(
    planned: Sequence[PlannedTraining], store: TrainingStore, retry: Sequence[str] = ()
) -> list[tuple[TrainingRun, int]]:
    """(training, 0) of the entries that `train` would pass over on this machine."""
    machine, version = this_machine().name, framework_version("torch")
    records = (
        store.find(machine, TrainingRecord.key_for(entry.run, 0, machine, version))
        for entry in planned
    )
    return [(one.training, 0) for one in records if one is not None and one.status not in retry]


@answered
def main(words: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 1 if something did not end well, 2 for bad input."""
    names = {"grids": ", ".join(GRIDS), "checkpoints": str(paths.CHECKPOINTS)}
    arguments = parsed(words, TRAIN, paths.TRAINING, "--folder", **names)
    chosen = _chosen(arguments)
    if arguments.dry_run:
        check_inputs(point.training.run for point in chosen)
        for point in chosen:
            check_devices(point.training.run)
            print(f"launch {point.launch} repeat {point.repeat}  {point.training.label()}")
        return 0
    with company_of(arguments) as company:
        if company and arguments.node_rank:
            print(
                f"{follow(company, launch_environment)} launches on host {arguments.node_rank};"
                " Records are on host 0"
            )
            return 0
        store, places = TrainingStore(arguments.folder), arguments.checkpoints
        retry, keep = arguments.retry, arguments.keep
        summary = train(chosen, store, places, retry, keep, not arguments.quiet, company=company)
    print(summary)
    return 1 if summary.troubles else 0


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
        known = known_here(planned, TrainingStore(arguments.folder), arguments.retry)
        chosen = affordable(planned, known, arguments.budget_s)
    else:
        chosen = points(planned)
    costs = {entry.run.digest: entry.cost_s for entry in planned}
    minutes = sum(costs[point.training.digest] for point in chosen) / 60
    print(f"{len(chosen)} runs to train; at most about {minutes:.0f} minutes", flush=True)
    return chosen
