"""Training to the end of a budget as an experiment: a process that is killed is started again, from
its checkpoint. No framework.
"""

import importlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

from multigpu.engines.common.session import Session
from multigpu.machine.machine import threads_for
from multigpu.records.base import Status
from multigpu.runner.experiment import Experiment, Trial, WorkerContext, input_fields
from multigpu.runner.hosts.group import LaunchHosts
from multigpu.runner.timed import check_there
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from multigpu_study.training.checkpoint import checkpoint_path, open_checkpoint
from multigpu_study.training.history import TrainedNumbers, measurement
from multigpu_study.training.record import TrainingMeasurement, TrainingStore
from multigpu_study.training.run import TrainingRun


class TrainingItem(Trial):
    """One TrainingRun to train; `run` is its Run. folder: where it checkpoints and logs; keep:
    whether a finished run leaves that there.
    """

    run: Run
    training: TrainingRun
    timeout_s: float = 1800.0
    folder: Path = Path()
    keep: bool = False

    @classmethod
    def of(cls, training: TrainingRun, repeat: int = 0, **more: Any) -> Self:
        return cls(run=training.run, training=training, repeat=repeat, **more)

    @property
    def spec(self) -> TrainingRun:
        return self.training


class TrainingExperiment(Experiment[TrainingItem]):
    """Runs that are trained; a checkpoint that is there is gone on from."""

    path = "multigpu_study.training.experiment:TRAINING"
    item = TrainingItem
    store = TrainingStore
    modules = ("multigpu_study.training.session", "torch._dynamo")

    def open(self, item: TrainingItem, seat: WorkerContext) -> Session:
        threads = threads_for(1 if item.run.processes == "one" else item.run.devices)
        engine = importlib.import_module("multigpu_study.training.session")
        return engine.TrainingSession(item, seat, threads, engine.Duties())

    def measure(
        self, item: TrainingItem, parts: Sequence[Mapping[str, Any]], total_s: float
    ) -> TrainingMeasurement:
        return measurement(item.training, cast(Sequence[TrainedNumbers], parts), total_s)

    def fields(self, item: TrainingItem, status: Status) -> dict[str, Any]:
        return {"training": item.training} | input_fields(item.run, status)

    def told(self, item: TrainingItem, measured: TrainingMeasurement) -> str:
        return f"{measured.units / measured.train_s:,.0f} {description_of(item.run).unit}/s"

    def finished(self, item: TrainingItem) -> None:
        if not item.keep:
            shutil.rmtree(item.folder, ignore_errors=True)

    def check(self, item: TrainingItem, company: LaunchHosts | None) -> None:
        check_there(item.run, company)
        if (found := checkpoint_path(item.folder)).exists():
            open_checkpoint(found, item.training)

    def launch_of(self, item: TrainingItem) -> tuple[int, bool]:
        return item.launch, item.run.processes == "one"


TRAINING = TrainingExperiment()


def folder_of(checkpoints: Path, training: TrainingRun, repeat: int) -> Path:
    """Named by what is trained and not by the machine, so that another machine can go on."""
    return checkpoints / f"{training.digest}.{repeat}"
