"""Read Records for a page of the study: as any page, and Records of training to the end of a
budget and of a parameter server's protocols.
"""

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from multigpu.analysis.collectives import collectives_frame
from multigpu.analysis.points import Missing
from multigpu.analysis.read import Study, frames
from multigpu.user_model.result import Result, compared
from multigpu_study.analysis.collectives import host_points
from multigpu_study.analysis.synchrony import synchrony_frame
from multigpu_study.analysis.training import training_frame
from multigpu_study.synchrony.averaging import AveragingRecord
from multigpu_study.synchrony.experiment import VIRTUAL
from multigpu_study.synchrony.record import SynchronyRecord
from multigpu_study.synchrony.store import SynchronyStore
from multigpu_study.training.record import TrainingRecord, TrainingStore


@dataclass(frozen=True)
class DocumentStudy(Study):
    """Records of a folder as one page speaks of them, with those of training and synchrony."""

    @cached_property
    def training_records(self) -> list[TrainingRecord]:
        """This machine's Records of training to the end of a budget."""
        return [
            record
            for record in TrainingStore(self.data / "training")
            if record.machine.name == self.machine
        ]

    @cached_property
    def training(self) -> pd.DataFrame:
        """A row a Record of them (`training.training_frame`)."""
        return training_frame(self.training_records)

    @cached_property
    def synchrony_records(self) -> list[SynchronyRecord]:
        """Synchrony's Records of this machine, and those of the virtual clock, which has none."""
        known = SynchronyStore(self.data / "synchrony")
        return [
            one
            for one in known
            if isinstance(one, SynchronyRecord) and one.place in (self.machine, VIRTUAL)
        ]

    @cached_property
    def synchrony(self) -> pd.DataFrame:
        """A row a Record of them and of averaged models (`synchrony.synchrony_frame`)."""
        averaged = (
            one
            for one in SynchronyStore(self.data / "synchrony")
            if isinstance(one, AveragingRecord)
        )
        return synchrony_frame([*self.synchrony_records, *averaged])

    @cached_property
    def hosts(self) -> pd.DataFrame:
        """A row a point of all-reduces between hosts, which are made on one computer of any kind
        (`host_points`).
        """
        return host_points(collectives_frame(self.data / "hosts"))

    @cached_property
    def host_steps(self) -> pd.DataFrame:
        """A row a point of training steps between such hosts (`points.points`)."""
        return frames(self.data / "hosts" / "runs")[1]

    def comparison(self, name: str) -> Result:
        """Read a comparison of the folder `comparisons`; Missing: none of this name is there."""
        try:
            return compared(self.data / "comparisons" / name)
        except ValueError:
            raise Missing(f"no comparison {name} lies in {self.data.name}/comparisons") from None
