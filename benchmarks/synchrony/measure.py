"""Run a grid of experiments and write their Records: `python -m benchmarks.synchrony --grid study
--budget-s 400`.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.synchrony.averaging import measure_averaging
from benchmarks.synchrony.downpour import simulate_downpour
from benchmarks.synchrony.real import run_real

from multigpu.cli.command import Parser, add_records, answered, name, seconds
from multigpu.grids import find_grid
from multigpu.grids.planned import Planned
from multigpu.machine.lock import machine_lock
from multigpu.machine.machine import gpu_count
from multigpu.paths import SYNCHRONY
from multigpu.records.base import STATUSES
from multigpu.runner.summary import LEFT, Summary, followed
from multigpu_study.synchrony.averaging import AveragingExperiment
from multigpu_study.synchrony.downpour import Downpour
from multigpu_study.synchrony.experiment import ExperimentBase, ProtocolExperiment
from multigpu_study.synchrony.grid import GRIDS
from multigpu_study.synchrony.problems import Problem
from multigpu_study.synchrony.record import Measured, SynchronyRecord, make_record
from multigpu_study.synchrony.server import Server
from multigpu_study.synchrony.simulate import simulate
from multigpu_study.synchrony.store import SynchronyStore


def measure_protocol(
    experiment: ProtocolExperiment,
    problem: Problem | None,
    real: Callable[[ProtocolExperiment, Problem | None], Server] = run_real,
) -> SynchronyRecord:
    """On its clock; `real` runs what is of the real one, and a Record says why where that fails."""
    if experiment.clock == "virtual":
        return make_record(experiment, simulate(experiment, problem))
    with machine_lock():
        try:
            return make_record(experiment, real(experiment, problem))
        except RuntimeError as error:
            return make_record(experiment, None, reason=str(error))


MEASURES: dict[type[ExperimentBase], Callable[[Any, Any], Measured[Any]]] = {
    ProtocolExperiment: measure_protocol,
    AveragingExperiment: measure_averaging,
    Downpour: lambda *asked: simulate_downpour(*asked)[0],
}
"""By the kind of an experiment: what runs it on its opened problem and gives its Record."""


def measure(
    planned: Sequence[Planned[ExperimentBase]],
    root: Path = SYNCHRONY,
    budget_s: float | None = None,
    progress: bool = True,
    retry: Collection[str] = ("failed",),
    measures: Mapping[type[ExperimentBase], Callable[[Any, Any], Measured[Any]]] = MEASURES,
) -> Summary:
    """Run what has no Record under `root` yet, in order, as far as the estimates fit what is left
    of `budget_s`. What ended with a status that `retry` names is run again, as the next attempt; of
    real runs, whose seconds are another occasion's, only what failed.
    """
    store, start_s = SynchronyStore(root), time.monotonic()
    store.check_writable()

    def due(experiment: ExperimentBase) -> bool:
        known = store.of_experiment(experiment)
        status = getattr(known, "status", "ok")
        return known is None or (
            status in retry
            and (status == "failed" or getattr(experiment, "clock", "virtual") == "virtual")
        )

    missing = [entry for entry in planned if due(entry.run)]
    opened: tuple[object, Problem | None] = (None, None)  # the latest problem: neighbours share it
    with followed(len(missing), progress) as (summary, bar):
        summary.reused = len(planned) - len(missing)
        for entry in missing:
            experiment = entry.run
            if budget_s is not None and time.monotonic() - start_s + entry.cost_s > budget_s:
                summary.statuses[LEFT] += 1
                continue
            if opened[0] != experiment.problem:
                opened = experiment.problem, experiment.open()
            record = measures[type(experiment)](experiment, opened[1])
            store.write(
                record.model_copy(update={"attempt": store.next_attempt(record.place, record.key)})
            )
            status = getattr(record, "status", "ok")
            summary.statuses[status] += 1
            if status == "failed":
                summary.troubles.append(
                    f"failed: {experiment.label}: {getattr(record, 'reason', '')}"
                )
            bar.update()
    return summary


def possible_here(
    planned: Sequence[Planned[ExperimentBase]], gpus: int
) -> list[Planned[ExperimentBase]]:
    """Without the entries that need more GPUs than there are. Refuses (ValueError) where none is
    left, or Ray is needed.
    """
    if any(getattr(entry.run, "engine", "") == "ray" for entry in planned):
        raise ValueError("experiments over Ray are run by `python -m benchmarks.over_ray`")
    needed = [getattr(entry.run, "gpus", 0) for entry in planned]
    if min(needed) > gpus:
        raise ValueError(
            f"these experiments need {min(needed)} GPUs or more, and this machine has {gpus}"
        )
    return [entry for entry, own in zip(planned, needed, strict=True) if own <= gpus]


@answered
def main(words: Sequence[str] | None = None) -> int:
    """The command; returns the exit code, 1 if a real run failed and 2 for bad input."""
    parser = Parser(
        prog="python -m benchmarks.synchrony", description="Run a parameter server's protocols."
    )
    parser.add_argument(
        "--grid",
        type=name,
        default="study",
        help=f"one of {', '.join(GRIDS)} (default: study, about ten minutes)",
    )
    parser.add_argument("--budget-s", type=seconds, help="seconds to spend")
    parser.add_argument(
        "--retry",
        action="append",
        default=[],
        help=f"run again what ended so: {' '.join(STATUSES)}",
    )
    parser.add_argument("--dry-run", action="store_true", help="only list what would be run")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument(
        "--again",
        action="store_true",
        help="run also what has a Record, as its next attempt; not real runs",
    )
    add_records(parser, SYNCHRONY, "--folder")
    arguments = parser.parse_args(words)
    planned = possible_here(find_grid(arguments.grid, grids=GRIDS), gpu_count())
    print(
        f"{len(planned)} experiments; about {sum(entry.cost_s for entry in planned):.0f} s if none"
        " has a Record",
        flush=True,
    )
    if arguments.dry_run:
        for entry in planned:
            part = Path(entry.where.rpartition(",")[0]).stem
            print(f"{entry.cost_s:6.1f} s  {part}  {entry.run.label}")
        return 0
    retry = ("failed", *arguments.retry, *(("ok",) if arguments.again else ()))
    summary = measure(planned, arguments.folder, arguments.budget_s, not arguments.quiet, retry)
    print(summary)
    return summary.exit_code
