"""A StageRecord, in `data/stages/<machine>/`: what each stage of a model was measured to cost, and
the best placement by that.
"""

from multigpu import paths
from multigpu.build import JudgedRun
from multigpu.machine.machine import framework_version
from multigpu.records.base import SCHEMA_VERSION, Kept, key_of
from multigpu.records.store import RecordKind, Store
from multigpu.spec.run import Run
from multigpu.spec.schema import Data
from multigpu_study.stages.costs import Costs, HostModel

STAGE_TIMING_VERSION = 1
"""Enters every key. Raise it when a figure's meaning changes: old and new stay apart."""
REFUTED = "refuted"
"""A placement that was priced lowest and took longer than one written by hand."""


class Predicted(Data):
    """A priced placement. stage_devices: a digit a stage. serial_s: if nothing ran side by side."""

    name: str
    stage_devices: str
    devices: int
    step_time_s: float
    serial_s: float
    cut_bytes: int


class StageRecord(Kept):
    """Measured costs of one model's stages and what a search made of them.
    run: of the whole model on one device. repeats: calls behind every cost.
    measured_s: seconds a step of the placements written by hand that had Records on this machine,
        medians. found_s: of those that searches found, by their stages' devices. host_model_errors:
            how far each model of the host missed all of these
        (`benchmarks/stage_search`); `costs.threads` is the one that missed least.
    predictions: of the placements written by hand, then of those that were found and took longer
        than one written by hand (REFUTED), then of the one found. tried, complete: placements
        priced, and whether all were.
    """

    schema_version: int = SCHEMA_VERSION
    run: JudgedRun
    devices: int
    repeats: int
    costs: Costs
    measured_s: dict[str, float] = {}
    found_s: dict[str, float] = {}
    host_model_errors: dict[HostModel, float] = {}
    predictions: list[Predicted]
    tried: int
    complete: bool
    timing_version: int = STAGE_TIMING_VERSION

    @property
    def found(self) -> Predicted:
        return self.predictions[-1]

    @property
    def by_hand(self) -> str | None:
        """The placement written by hand that is the best one, if there is one."""
        by_hand = (one for one in self.predictions[:-1] if one.name != REFUTED)
        return next(
            (one.name for one in by_hand if one.stage_devices == self.found.stage_devices), None
        )

    def measured(self, one: Predicted) -> float | None:
        """Seconds a step of a priced placement, or of the one written by hand that puts every stage
        where it does; None: not measured.
        """
        return self.measured_s.get(
            one.name, self.found_s.get(one.stage_devices, self.measured_s.get(self.by_hand or ""))
        )

    @property
    def own_key(self) -> str:
        return stage_key(
            self.run,
            self.devices,
            self.machine.name,
            framework_version(self.run.framework, self.versions),
        )


def stage_key(run: Run, devices: int, machine: str, framework_version: str) -> str:
    """The name of a measurement of this model's stages for so many devices."""
    return key_of("stages", run.digest, devices, machine, framework_version, STAGE_TIMING_VERSION)


class StageStore(Store[StageRecord]):
    """StageRecords in `<root>/<machine>/`."""

    kind = StageRecord


STAGES = RecordKind(
    name="stages", stores=lambda: [StageStore(paths.STAGES)], records={"predictions": StageRecord}
)
