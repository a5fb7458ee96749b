"""What the programs that train a plan share: which Records are known, a TrainingSession, and writing TrainingRecords."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path
from typing import Any

from multigpu.engines.errors import DidNotTrain
from multigpu.kept import made_here
from multigpu.measure.machine import threads_for
from multigpu.measure.plan import Item
from multigpu.measure.program import Program
from multigpu.record import Status
from multigpu.training.history import measurement
from multigpu.training.plan import TrainingItem, TrainingPlan, find_training_record
from multigpu.training.record import TRAINING_VERSION, TrainingMeasurement, TrainingRecord, TrainingStore
from multigpu.training.session import TrainingSession


class TrainingProgram(Program):
    """One process of a launch that trains, whatever the number of its kind."""

    plan: TrainingPlan

    def known(self, item: Item) -> Any:
        assert isinstance(item, TrainingItem)
        return find_training_record(self.plan, item)

    def training_session(self, item: Item, shared: Path, rank: int, processes: int) -> TrainingSession:
        """The side that process `rank` of so many has of an item's TrainingRun; they share the host's threads."""
        assert isinstance(item, TrainingItem)
        threads = threads_for(processes)
        module, _, name = item.duties.partition(":")
        duties = getattr(importlib.import_module(module), name)()

        def stage(reached: str) -> None:
            self.hook(reached, item.run, rank)

        folder = self.plan.folder(item)
        return TrainingSession(item.training, rank, threads, shared, item.timeout_s, self.startup_s, stage, duties, folder)

    def publish_record(self, index: int, item: Item, key: str, parts: list[dict[str, Any]], total_s: float) -> None:
        """Write what all replicas know as one Record; the checkpoint of what is finished is of no more use."""
        assert isinstance(item, TrainingItem)
        try:
            measured = measurement(item.training, parts, total_s)
        except DidNotTrain as error:
            self.refuse(index, item, key, ("failed", str(error)))
            return
        self.write(item, key, "ok", "", measured)
        self.journal.report(
            index=index,
            event="done",
            status="ok",
            label=item.training.label(),
            units_per_s=measured.units / measured.train_s,
            unit=item.run.description.unit,
        )
        if not self.plan.keep:
            shutil.rmtree(self.plan.folder(item), ignore_errors=True)

    def write(self, item: Item, key: str, status: Status, reason: str, measured: TrainingMeasurement | None = None, *_: Any) -> Any:
        """The Record of this item, written."""
        assert isinstance(item, TrainingItem)
        input_label, input_fingerprint = self.input_of(item, status)
        record = TrainingRecord(
            key=key,
            attempt=item.attempt,
            training=item.training,
            repeat=item.repeat,
            status=status,
            reason=reason,
            training_version=TRAINING_VERSION,
            launch_id=f"{self.plan.launch_id}.{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}",
            input_label=input_label,
            input_fingerprint=input_fingerprint,
            measurement=measured,
            **made_here({name: version for name, version in self.plan.versions.items() if "tensorflow" not in name}),
        )
        self.keep(TrainingStore(self.plan.records), record)
        return record
