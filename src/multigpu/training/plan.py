"""What a launch that trains is told to do; the same launcher as for timing carries it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import model_validator

from multigpu.measure.plan import Item, Plan
from multigpu.training.record import TrainingRecord, TrainingStore, training_key
from multigpu.training.run import TrainingRun


class TrainingItem(Item):
    """One TrainingRun to train; `run` is its Run.

    duties: "module:class" of the `Duties` that its replicas do; a way to plant faults.
    """

    training: TrainingRun
    duties: str = "multigpu.training.duties:Duties"

    @model_validator(mode="before")
    @classmethod
    def _with_run(cls, values: Any) -> Any:
        if isinstance(values, dict) and "run" not in values and "training" in values:
            training = values["training"]
            values = {**values, "run": training.run if isinstance(training, TrainingRun) else training["run"]}
        return values


class TrainingPlan(Plan):
    """One launch.

    program: `training.worker`, or `training.solo` where one process has all devices.
    checkpoints: root of the folders in which runs checkpoint and log; keep: whether finished runs leave them there.
    """

    items: list[TrainingItem]  # type: ignore[assignment]  # every TrainingItem is an Item
    program: str = "multigpu.training.worker"  # type: ignore[assignment]
    checkpoints: Path
    keep: bool = False

    def key(self, item: Item) -> str:
        assert isinstance(item, TrainingItem)
        return training_key(item.training, item.repeat, self.machine, self.framework_version)

    def folder(self, item: TrainingItem) -> Path:
        """Where this run checkpoints and logs."""
        return folder_of(self.checkpoints, item.training, item.repeat)


def folder_of(checkpoints: Path, training: TrainingRun, repeat: int) -> Path:
    """Named by what is trained and not by the machine, so that another machine can go on."""
    return checkpoints / f"{training.digest}.{repeat}"


def find_training_record(plan: TrainingPlan, item: TrainingItem) -> TrainingRecord | None:
    """The Record that makes this item unnecessary, or None."""
    record = TrainingStore(plan.records).find(plan.machine, plan.key(item))
    return record if record and record.attempt >= item.attempt else None
