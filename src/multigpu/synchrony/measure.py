"""Run a grid of experiments and write their Records: `python -m multigpu synchrony --grid study --budget-s 400`.

What has a Record is not run again, so the same command goes on where it stopped.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm.auto import tqdm

from multigpu.command import Parser, add_usual, answered, name
from multigpu.measure.machine import gpu_count
from multigpu.measure.turn import turn
from multigpu.synchrony.averaging_record import AveragingExperiment, AveragingStore, measure_averaging
from multigpu.synchrony.downpour import Downpour
from multigpu.synchrony.downpour_record import DownpourStore, measure_downpour
from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.grid import GRIDS, find_grid
from multigpu.synchrony.over_ray import check_ray, run_over_ray
from multigpu.synchrony.planned import Planned
from multigpu.synchrony.problems import Problem
from multigpu.synchrony.real import run_real
from multigpu.synchrony.record import RECORDS, SynchronyStore, make_record
from multigpu.synchrony.simulate import simulate


@dataclass(frozen=True)
class Summary:
    """What a call did: experiments of the grid that had a Record, that were run, that failed, and that the budget left out."""

    known: int
    run: int
    failed: int
    left: int
    spent_s: float

    def __str__(self) -> str:
        parts = [f"{self.run} experiments run in {self.spent_s:.0f} s", f"{self.known} had a Record"]
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.left} left for the same command with more time"] if self.left else []
        return ", ".join(parts)


def measure(
    planned: Sequence[Planned], root: Path = RECORDS, budget_s: float | None = None, progress: bool = True, again: bool = False
) -> Summary:
    """Run what has no Record under `root` yet, in order, as far as the estimates fit what is left of `budget_s`.

    again: run also what has one, as its next attempt; not real runs, whose seconds are another occasion's.
    A real run that fails leaves a Record that says why; it is run again by the next call.
    """
    store, averages, downpours = SynchronyStore(root), AveragingStore(root), DownpourStore(root)
    store.check_writable()
    missing = [entry for entry in planned if (again and _virtual(entry)) or not _known(entry, store, averages, downpours)]
    start_s = time.monotonic()
    run = failed = 0
    built: tuple[object, Problem | None] = (None, None)  # the latest problem: neighbours share it
    for entry in tqdm(missing, unit="experiment", disable=not progress):
        if budget_s is not None and time.monotonic() - start_s + entry.cost_s > budget_s:
            continue
        run += 1
        experiment = entry.experiment
        if isinstance(experiment, AveragingExperiment):
            before = averages.find(experiment)
            averages.write(measure_averaging(experiment).model_copy(update={"attempt": before.attempt + 1 if before else 0}))
            continue
        if isinstance(experiment, Experiment) and experiment.clock == "real":
            failed += not _run_real(experiment, store)
            continue
        if built[0] != experiment.problem:
            built = (experiment.problem, experiment.problem.build() if experiment.problem else None)
        if isinstance(experiment, Downpour):
            downpours.write(measure_downpour(experiment, built[1]))
            continue
        known = store.find(experiment)
        store.write(make_record(experiment, simulate(experiment, built[1]), attempt=known.attempt + 1 if known else 0))
    return Summary(len(planned) - len(missing), run, failed, len(missing) - run, time.monotonic() - start_s)


def _virtual(entry: Planned) -> bool:
    return not isinstance(entry.experiment, Downpour) and getattr(entry.experiment, "clock", "virtual") == "virtual"


def _known(entry: Planned, store: SynchronyStore, averages: AveragingStore, downpours: DownpourStore) -> bool:
    if isinstance(entry.experiment, Downpour):
        return downpours.find(entry.experiment) is not None
    if isinstance(entry.experiment, AveragingExperiment):
        return averages.find(entry.experiment) is not None
    record = store.find(entry.experiment)
    return record is not None and record.status != "failed"


def _run_real(experiment: Experiment, store: SynchronyStore) -> bool:
    """Whether it went well; its Record is written either way."""
    before = store.find(experiment)
    attempt = before.attempt + 1 if before else 0
    with turn(), tempfile.TemporaryDirectory(prefix="multigpu-synchrony-") as folder:
        try:
            if experiment.engine == "ray":
                # actors wait more than they compute: none reserves a core
                outcome = run_over_ray(experiment, stall_s=120.0, num_cpus=0)
            else:
                # a checkpoint now and then would show in the times of a model on a device
                rarely = 100 if experiment.law.kind != "computed" else 1_000_000
                outcome = run_real(experiment, Path(folder), checkpoint_updates=rarely, stall_s=120.0)
            record = make_record(experiment, outcome, attempt=attempt)
        except RuntimeError as error:
            record = make_record(experiment, None, attempt=attempt, reason=str(error))
    store.write(record)
    return record.status == "ok"


def possible_here(planned: Sequence[Planned], gpus: int) -> list[Planned]:
    """Without the entries that need more GPUs than there are: one for every worker (and one of them for a server on a GPU).

    Raises:
        ValueError: none is left; the sentence names both numbers. Or an entry needs Ray, which is not installed.
    """
    if any(isinstance(entry.experiment, Experiment) and entry.experiment.engine == "ray" for entry in planned):
        check_ray()
    needs = [_gpus_of(entry) for entry in planned]
    chosen = [entry for entry, need in zip(planned, needs, strict=True) if need <= gpus]
    if not chosen:
        raise ValueError(f"these experiments need {min(needs)} GPUs or more, and this machine has {gpus}")
    return chosen


def label(entry: Planned) -> str:
    """What tells an entry from its neighbours, in one line."""
    e = entry.experiment
    if isinstance(e, Downpour):
        return f"downpour N={e.replicas} {e.rule} every {e.push_every} seed {e.seed}"
    if isinstance(e, AveragingExperiment):
        return f"averaging P={e.workers} {e.problem.kind} seed {e.seed}"
    problem = getattr(e.problem, "model", e.problem.kind) if e.problem else "no gradients"
    late = f" straggler {max(e.delays_s):g} s" if e.delays_s else ""
    return f"{e.protocol} P={e.workers} K={e.gradients_per_update} {e.law.kind} {problem} {_where(e)}{late} seed {e.seed}"


def _where(experiment: Experiment) -> str:
    if experiment.server_device != "host":
        return f"{experiment.clock}, server on {experiment.server_device}"
    return "over Ray" if experiment.engine == "ray" else experiment.clock


def _gpus_of(entry: Planned) -> int:
    experiment = entry.experiment
    if not isinstance(experiment, Experiment):
        return 0
    on_gpus = getattr(experiment.problem, "device", "cpu") == "cuda"
    return experiment.workers if on_gpus else int(experiment.server_device == "cuda")


@answered
def main(words: Sequence[str] | None = None) -> int:
    """The command; returns the exit code, 1 if a real run failed and 2 for bad input."""
    parser = Parser(prog="multigpu synchrony", description="Run synchrony experiments and keep their Records.")
    parser.add_argument("--grid", type=name, default="study", help=f"one of {', '.join(GRIDS)} (default: study, about ten minutes)")
    add_usual(parser, "--budget-s", "--dry-run", "--quiet")
    parser.add_argument("--folder", type=Path, default=RECORDS, help="folder of the Records (default: data/synchrony)")
    parser.add_argument("--again", action="store_true", help="run also what has a Record, as its next attempt; not real runs")
    arguments = parser.parse_args(words)
    planned = possible_here(find_grid(arguments.grid), gpu_count())
    print(f"{len(planned)} experiments; about {sum(entry.cost_s for entry in planned):.0f} s if none has a Record", flush=True)
    if arguments.dry_run:
        for entry in planned:
            print(f"{entry.cost_s:6.1f} s  {entry.part}  {label(entry)}")
        return 0
    summary = measure(planned, arguments.folder, arguments.budget_s, progress=not arguments.quiet, again=arguments.again)
    print(summary)
    return 1 if summary.failed else 0
