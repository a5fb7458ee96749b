"""TrainingRecords as a kind of their own."""

from multigpu import paths
from multigpu.records.store import RecordKind
from multigpu_study.training.record import TrainingRecord, TrainingStore

TRAINING = RecordKind(
    name="training",
    stores=lambda: [TrainingStore(paths.TRAINING)],
    records={"training": TrainingRecord},
)
