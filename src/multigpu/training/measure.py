"""Train what has no Record yet: `python -m multigpu train --grid training_cpu`, or one run by its fields.

What was interrupted goes on from its checkpoint, what is finished is not trained again. Imports no framework.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from multigpu import paths
from multigpu.arguments import parse_fields
from multigpu.command import Parser, add_usual, answered, name
from multigpu.hosts.arguments import add_arguments
from multigpu.hosts.arguments import company as company_of
from multigpu.hosts.launching import Company, check_run, follow
from multigpu.inputs.check import check_inputs
from multigpu.measure.launch import Summary, check_devices, launch_environment, launch_plan
from multigpu.measure.machine import framework_version, gpu_count, this_machine, versions
from multigpu.measure.memory import memory_folder, scratch_folder
from multigpu.measure.turn import turn
from multigpu.run import Run
from multigpu.training.checkpoint import checkpoint_path, open_checkpoint
from multigpu.training.grid import GRIDS, PlannedTraining, default_grid, find_grid, restricted
from multigpu.training.plan import TrainingItem, TrainingPlan, find_training_record, folder_of
from multigpu.training.record import TRAINING_VERSION, TrainingStore, training_key
from multigpu.training.run import TrainingRun, build_training_run


@dataclass(frozen=True)
class Point:
    """A TrainingRun to be trained. launch: those with different numbers are trained by different launches."""

    training: TrainingRun
    repeat: int = 0
    launch: int = 0
    timeout_s: float = 1800.0
    duties: str = ""


def points(planned: Sequence[PlannedTraining]) -> list[Point]:
    """Every repeat of every entry, in order."""
    return [
        Point(entry.training, repeat, entry.launch, max(600.0, 20 * entry.cost_s)) for entry in planned for repeat in range(entry.repeats)
    ]


def launch_of(point: Point) -> tuple[int, bool]:
    """What points must share to be trained by one launch: its number, and whether it is one process for all devices."""
    return point.launch, point.training.run.processes == "one"


def train(
    chosen: Sequence[Point],
    store: TrainingStore,
    checkpoints: Path = paths.CHECKPOINTS,
    retry: Sequence[str] = (),
    keep: bool = False,
    progress: bool = True,
    hook: str | None = None,
    company: Company | None = None,
) -> Summary:
    """Train every point that has no Record yet; whatever happens on the way, Records and checkpoints stay.

    Args:
        checkpoints: root of the folders of runs that checkpoint; one that is there is gone on from.
        retry: statuses whose runs are trained again, as a new attempt beside the old Record.
        keep: leave the last checkpoint and the log of finished runs.
        company: the hosts of this launch, of which this one is the first; checkpoints are its own.

    Raises:
        ValueError: a point cannot run on this machine, its input or its checkpoint cannot be used, or Records cannot be written;
            nothing was started.
        RuntimeError: the launcher itself died; the same call goes on from there.
    """
    for point in chosen:
        if company:
            check_run(point.training.run, company.cluster)
        else:
            check_devices(point.training.run)
        found = checkpoint_path(folder_of(checkpoints, point.training, point.repeat))
        if found.exists():
            open_checkpoint(found, point.training)
    check_inputs(point.training.run for point in chosen)
    store.check_writable(this_machine().name)
    summary, began = Summary(), time.monotonic()
    bar = tqdm(total=len(chosen), unit="run", disable=not progress, smoothing=0.1)
    held = contextlib.ExitStack()
    try:
        for launch in sorted({launch_of(point) for point in chosen}):
            with scratch_folder("multigpu-training-") as scratch, memory_folder() as memory:
                own = [point for point in chosen if launch_of(point) == launch]
                plan, reused = make_plan(own, store.root.resolve(), scratch, memory, checkpoints, retry, keep, hook)
                summary.reused += reused
                bar.update(reused)
                if plan.items:
                    held.enter_context(turn())  # until the sweep ends
                    launch_plan(plan, bar, summary, company)
    finally:
        held.close()
        bar.close()
        summary.wall_s = time.monotonic() - began
    return summary


def make_plan(
    chosen: Sequence[Point],
    records: Path,
    scratch: Path,
    memory: Path,
    checkpoints: Path,
    retry: Sequence[str],
    keep: bool,
    hook: str | None,
) -> tuple[TrainingPlan, int]:
    """The plan of one launch (`launch_of`) without what has a Record already, and how many were left out."""
    alone = chosen[0].training.run.processes == "one"
    plan = TrainingPlan(
        items=[],
        program="multigpu.training.solo" if alone else "multigpu.training.worker",
        workers=1,
        machine=this_machine().name,
        versions=versions(),
        framework_version=framework_version("torch"),
        timing_version=TRAINING_VERSION,
        records=records,
        scratch=scratch,
        memory=memory,
        launch_id=uuid.uuid4().hex[:12],
        hook=hook,
        checkpoints=checkpoints.resolve(),
        keep=keep,
    )
    items: list[TrainingItem] = []
    for point in chosen:
        more: dict[str, Any] = {"duties": point.duties} if point.duties else {}
        item = TrainingItem(run=point.training.run, training=point.training, repeat=point.repeat, timeout_s=point.timeout_s, **more)
        known = find_training_record(plan, item)
        if known is None or known.status in retry:
            items.append(item.model_copy(update={"attempt": TrainingStore(plan.records).next_attempt(plan.machine, plan.key(item))}))
    # grouped by device count, since a new group costs as much as a short run; in the order of the grid within
    counts = list(dict.fromkeys(item.run.devices for item in items))
    items.sort(key=lambda item: counts.index(item.run.devices))
    workers = 1 if alone else max((item.run.devices for item in items), default=1)
    return plan.model_copy(update={"items": items, "workers": workers}), len(chosen) - len(items)


def affordable(planned: Sequence[PlannedTraining], store: TrainingStore, budget_s: float, retry: Sequence[str] = ()) -> list[Point]:
    """The points that `train` would train and whose estimates fit the budget, in the grid's order."""
    machine, version, left, found = this_machine().name, framework_version("torch"), budget_s, []
    for entry in planned:
        for point in points([entry]):
            known = store.find(machine, training_key(point.training, point.repeat, machine, version))
            if known is not None and known.status not in retry:
                continue
            if entry.cost_s <= left:
                left -= entry.cost_s
                found.append(point)
    return found


def parse_training_fields(texts: Sequence[str]) -> dict[str, Any]:
    """`name=value` words as fields of a TrainingRun or of its Run, as `arguments.parse_fields` reads them.

    Raises:
        ValueError: a word without "=", an unknown name, or a value that is not of the field's type.
    """
    own = {name: field for name, field in TrainingRun.model_fields.items() if name != "run"}
    return parse_fields(texts, {**Run.model_fields, **own})


@answered
def main(words: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 1 if something did not end well, 2 for bad input."""
    parser = Parser(prog="multigpu train", description="Train runs to the end of a budget and keep their Records.")
    parser.add_argument(
        "fields",
        nargs="*",
        metavar="field=value",
        help="fields of one TrainingRun and its Run, e.g. workload=cnn epochs=5; with --grid: its runs that have them",
    )
    parser.add_argument("--grid", type=name, help=f"one of {', '.join(GRIDS)}")
    add_usual(parser, "--budget-s", "--retry", "--dry-run", "--quiet")
    parser.add_argument("--folder", type=Path, default=paths.TRAINING, help="folder of the Records (default: data/training)")
    parser.add_argument("--checkpoints", type=Path, default=paths.CHECKPOINTS, help="folder of checkpoints (default: build/checkpoints)")
    parser.add_argument("--keep", action="store_true", help="leave the last checkpoint and the log of finished runs")
    add_arguments(parser)
    arguments = parser.parse_args(words)
    chosen = _chosen(arguments)
    if arguments.dry_run:
        check_inputs(point.training.run for point in chosen)
        for point in chosen:
            check_devices(point.training.run)
            print(f"launch {point.launch} repeat {point.repeat}  {point.training.label()}")
        return 0
    with company_of(arguments) as company:
        if company and arguments.node_rank:
            print(f"{follow(company, launch_environment)} launches on host {arguments.node_rank}; Records are on host 0")
            return 0
        store, quiet = TrainingStore(arguments.folder), arguments.quiet
        summary = train(chosen, store, arguments.checkpoints, arguments.retry, arguments.keep, not quiet, company=company)
    print(summary)
    return 1 if summary.troubles else 0


def _chosen(arguments: argparse.Namespace) -> list[Point]:
    if arguments.fields and not arguments.grid:
        fields = {"device_type": "cuda" if gpu_count() else "cpu", **parse_training_fields(arguments.fields)}
        return [Point(build_training_run(**fields))]
    planned = restricted(find_grid(arguments.grid or default_grid()), parse_training_fields(arguments.fields))
    if arguments.budget_s is not None:
        chosen = affordable(planned, TrainingStore(arguments.folder), arguments.budget_s, arguments.retry)
    else:
        chosen = points(planned)
    costs = {entry.training.digest: entry.cost_s for entry in planned}
    minutes = sum(costs[point.training.digest] for point in chosen) / 60
    print(f"{len(chosen)} runs to train; at most about {minutes:.0f} minutes", flush=True)
    return chosen
