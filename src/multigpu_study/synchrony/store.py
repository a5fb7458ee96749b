"""Where Records of experiments of every kind lie: `<root>/<"virtual", "averaging", "downpour" or
machine>/`; and what tells them from others.
"""

from typing import Any

from multigpu import paths
from multigpu.machine.machine import this_machine
from multigpu.records.store import RecordKind, Store
from multigpu_study.synchrony.averaging import AveragingExperiment, AveragingRecord
from multigpu_study.synchrony.downpour import Downpour, DownpourRecord
from multigpu_study.synchrony.experiment import ExperimentBase
from multigpu_study.synchrony.record import Measured, SynchronyRecord


class SynchronyStore(Store[Measured[Any]]):
    """SynchronyRecords, and in folders of their own the other kinds."""

    kind = SynchronyRecord
    kinds = {AveragingExperiment.folder: AveragingRecord, Downpour.folder: DownpourRecord}

    def of_experiment(self, experiment: ExperimentBase) -> Measured[Any] | None:
        """The latest attempt of this experiment on this machine, or None."""
        machine = this_machine().name
        return self.find(experiment.place_on(machine), experiment.key_on(machine))


SYNCHRONY = RecordKind(
    name="synchrony",
    stores=lambda: [SynchronyStore(paths.SYNCHRONY)],
    records={
        "joint": AveragingRecord,
        "shard_updates": DownpourRecord,
        "experiment": SynchronyRecord,
    },
)
