"""Training to the end of a budget as an experiment: what a launch is told of a TrainingRun, and its Records. Imports no framework.

A process that is killed takes its launch with it; the launcher starts all of them again, and the run goes on from its checkpoint.
"""

from __future__ import annotations

import importlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multigpu import paths
from multigpu.hosts.launching import Company
from multigpu.hosts.spread import Spread
from multigpu.kept import Status
from multigpu.measure.experiment import Due, Experiment, Seat, input_fields
from multigpu.measure.machine import threads_for
from multigpu.measure.session import Session
from multigpu.measure.timed import check_there
from multigpu.run import Run
from multigpu.training.checkpoint import checkpoint_path, open_checkpoint
from multigpu.training.history import measurement
from multigpu.training.record import TrainingMeasurement, TrainingStore
from multigpu.training.run import TrainingRun


@dataclass(frozen=True)
class Point:
    """A TrainingRun to be trained. launch: those with different numbers are trained by different launches."""

    training: TrainingRun
    repeat: int = 0
    launch: int = 0
    timeout_s: float = 1800.0


class TrainingItem(Due):
    """One TrainingRun to train; `run` is its Run.

    folder: where it checkpoints and logs; keep: whether a finished run leaves that there.
    """

    run: Run
    training: TrainingRun
    folder: Path
    keep: bool

    @property
    def asked(self) -> TrainingRun:
        return self.training


class Training(Experiment[Point, TrainingItem]):
    """Runs that are trained. checkpoints: root of their folders; one that is there is gone on from."""

    path = "multigpu.training.experiment:TRAINING"
    item, store, modules = TrainingItem, TrainingStore, ("multigpu.training.session", "torch._dynamo")

    def __init__(self, checkpoints: Path = paths.CHECKPOINTS, keep: bool = False) -> None:
        self.checkpoints, self.keep = checkpoints, keep

    def open(self, item: TrainingItem, seat: Seat) -> Session:
        threads = threads_for(1 if item.run.processes == "one" else item.run.devices)
        engine = importlib.import_module("multigpu.training.session")
        session: Session = engine.TrainingSession(
            item.training, seat.rank, threads, seat.shared, item.timeout_s, seat.startup_s, seat.stage, engine.Duties(), item.folder
        )
        return session

    def measure(self, item: TrainingItem, parts: list[dict[str, Any]], total_s: float) -> TrainingMeasurement:
        return measurement(item.training, parts, total_s)

    def fields(self, item: TrainingItem, status: Status) -> dict[str, Any]:
        return {"training": item.training} | input_fields(item.run, status)

    def told(self, item: TrainingItem, measured: TrainingMeasurement) -> str:
        return f"{measured.units / measured.train_s:,.0f} {item.run.description.unit}/s"

    def finished(self, item: TrainingItem) -> None:
        if not item.keep:
            shutil.rmtree(item.folder, ignore_errors=True)

    def check(self, point: Point, company: Company | Spread | None) -> None:
        check_there(point.training.run, company)
        found = checkpoint_path(folder_of(self.checkpoints, point.training, point.repeat))
        if found.exists():
            open_checkpoint(found, point.training)

    def launch_of(self, point: Point) -> tuple[int, bool]:
        return point.launch, point.training.run.processes == "one"

    def due(self, point: Point) -> TrainingItem:
        return TrainingItem(
            run=point.training.run,
            training=point.training,
            repeat=point.repeat,
            timeout_s=point.timeout_s,
            folder=folder_of(self.checkpoints.resolve(), point.training, point.repeat),
            keep=self.keep,
        )


TRAINING = Training()


def folder_of(checkpoints: Path, training: TrainingRun, repeat: int) -> Path:
    """Named by what is trained and not by the machine, so that another machine can go on."""
    return checkpoints / f"{training.digest}.{repeat}"
