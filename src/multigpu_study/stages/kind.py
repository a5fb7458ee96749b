"""StageRecords as a kind of their own."""

from multigpu import paths
from multigpu.records.store import RecordKind
from multigpu_study.stages.record import StageRecord, StageStore

STAGES = RecordKind(
    name="stages", stores=lambda: [StageStore(paths.STAGES)], records={"predictions": StageRecord}
)
