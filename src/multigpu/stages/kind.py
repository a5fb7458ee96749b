"""StageRecords as a kind of their own."""

from multigpu import paths
from multigpu.stages.record import StageRecord, StageStore
from multigpu.store import RecordKind

STAGES = RecordKind(
    name="stages",
    stores=lambda: [StageStore(paths.STAGES)],
    records={"predictions": StageRecord},
)
