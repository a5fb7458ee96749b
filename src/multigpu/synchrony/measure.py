"""Run a grid of experiments and write their Records: `python -m multigpu.synchrony.measure --grid study --budget-s 400`.

What has a Record is not run again, so the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm.auto import tqdm

from multigpu.synchrony.averaging_record import AveragingExperiment, AveragingStore, measure_averaging
from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.grid import GRIDS, Planned, find_grid
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


def measure(planned: Sequence[Planned], root: Path = RECORDS, budget_s: float | None = None, progress: bool = True) -> Summary:
    """Run what has no Record under `root` yet, in order, as far as the estimates fit what is left of `budget_s`.

    A real run that fails leaves a Record that says why; it is run again by the next call.
    """
    store, averages = SynchronyStore(root), AveragingStore(root)
    missing = [entry for entry in planned if not _known(entry, store, averages)]
    start_s = time.monotonic()
    run = failed = 0
    built: tuple[object, Problem | None] = (None, None)  # the latest problem: neighbours share it
    for entry in tqdm(missing, unit="experiment", disable=not progress):
        if budget_s is not None and time.monotonic() - start_s + entry.cost_s > budget_s:
            continue
        run += 1
        experiment = entry.experiment
        if isinstance(experiment, AveragingExperiment):
            averages.write(measure_averaging(experiment))
            continue
        if experiment.clock == "real":
            failed += not _run_real(experiment, store)
            continue
        if built[0] != experiment.problem:
            built = (experiment.problem, experiment.build_problem())
        store.write(make_record(experiment, simulate(experiment, built[1])))
    return Summary(len(planned) - len(missing), run, failed, len(missing) - run, time.monotonic() - start_s)


def _known(entry: Planned, store: SynchronyStore, averages: AveragingStore) -> bool:
    if isinstance(entry.experiment, AveragingExperiment):
        return averages.find(entry.experiment) is not None
    record = store.find(entry.experiment)
    return record is not None and record.status != "failed"


def _run_real(experiment: Experiment, store: SynchronyStore) -> bool:
    """Whether it went well; its Record is written either way."""
    before = store.find(experiment)
    attempt = before.attempt + 1 if before else 0
    with tempfile.TemporaryDirectory(prefix="multigpu-synchrony-") as folder:
        try:
            record = make_record(experiment, run_real(experiment, Path(folder)), attempt=attempt)
        except RuntimeError as error:
            record = make_record(experiment, None, attempt=attempt, reason=str(error))
    store.write(record)
    return record.status == "ok"


def main(words: Sequence[str] | None = None) -> int:
    """The command; returns the exit code, 1 if a real run failed and 2 for bad input."""
    parser = argparse.ArgumentParser(prog="multigpu.synchrony.measure", description="Run synchrony experiments and keep their Records.")
    parser.add_argument("--grid", default="study", help=f"one of {', '.join(GRIDS)} (default: study, about five minutes)")
    parser.add_argument("--budget-s", type=float, metavar="S", help="run only what the estimates allow in so many seconds")
    parser.add_argument("--folder", type=Path, default=RECORDS, help="folder of the Records (default: data/synchrony)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    arguments = parser.parse_args(words)
    try:
        planned = find_grid(arguments.grid)
        if arguments.budget_s is not None and arguments.budget_s <= 0:
            raise ValueError(f"budget-s must be positive, not {arguments.budget_s}")
    except ValueError as error:
        print(f"multigpu: {error}", file=sys.stderr)
        return 2
    print(f"{len(planned)} experiments; about {sum(entry.cost_s for entry in planned):.0f} s if none has a Record", flush=True)
    summary = measure(planned, arguments.folder, arguments.budget_s, progress=not arguments.quiet)
    print(summary)
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
