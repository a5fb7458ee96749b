"""A TrainingRecord, in `data/training/<machine>/`: what one TrainingRun reached, and the evidence
that its replicas did their duties.
"""

from multigpu import paths
from multigpu.machine.machine import DeviceState
from multigpu.records.base import RecordBase
from multigpu.records.store import RecordKind, Store
from multigpu.spec.schema import Data
from multigpu_study.training.build import JudgedTrainingRun

MORE_IS_BETTER = {"accuracy": True, "bleu": True, "loss": False, "perplexity": False}
"""Direction of the scores that the analysis knows; of others, more is taken to be better."""


class Evaluation(Data):
    """Scores after `step` steps, `samples` of all replicas and `seconds` of training."""

    step: int
    samples: int
    seconds: float
    scores: dict[str, float]


class EpochAudit(Data):
    """Counts of what replicas read in one epoch, by item. steps: that ran; complete: all of them,
    so that all `items` must have been read. distinct: items read by any replica. shared: by more
    than one, and `allowed`: how many the filling up of the last step explains.
    """

    epoch: int
    steps: int
    items: int
    distinct: int
    shared: int
    allowed: int
    complete: bool


class TrainingMeasurement(Data):
    """How far the budget brought the model.
    loss: a point for each `log_every` steps: the mean of the global batches' mean losses
        (independent replicas: over all of them).
    seconds: at each point, since the first step, barriers included, evaluations and checkpoints
        left out; the slowest replica's, without an interrupted run's lost steps. rate: at each
        point's last step, as the optimizers held it.
    samples, units: items, and words, images or reviews, of all replicas.
    start_hashes: sha256 of the weights each replica began to train with, after the broadcast.
        end_hashes: those at the end (of one replica where variables have one master).
    replicas_agree: whether all held the same bits at every stop, of their copies or of what they
        staged (None where they need not).
    epochs: audits; empty where the input has no items. evaluations_by_rank, files_by_rank: how
        often each scored the model, and names of the files it opened for writing (rank 0 answers
        for one process that has all devices).
    resumed_at: steps at which a checkpoint was taken up. train_s, evaluation_s, checkpoint_s: of
        the process that ended the run and its predecessors' checkpointed part. energy_j: by GPU, of
        the process that ended the run.
    """

    steps: int
    samples: int
    units: int
    steps_per_epoch: int | None
    loss: list[float]
    seconds: list[float]
    rate: list[float]
    evaluations: list[Evaluation]
    start_hashes: list[str]
    end_hashes: list[str]
    replicas_agree: bool | None
    parameter_change: float
    epochs: list[EpochAudit] = []
    evaluations_by_rank: list[int]
    files_by_rank: list[list[str]]
    resumed_at: list[int] = []
    train_s: float
    evaluation_s: float
    checkpoint_s: float
    startup_s: float
    build_s: float
    total_s: float
    host_threads: int
    peak_memory_gib: list[float]
    energy_j: list[float] = []
    device_states: list[DeviceState] = []
    flags: list[str] = []

    def final(self, score: str) -> float | None:
        return self.evaluations[-1].scores.get(score) if self.evaluations else None

    def reached(self, score: str, value: float) -> Evaluation | None:
        """The first evaluation whose score is as good as `value`, or None: time to accuracy."""
        for evaluation in self.evaluations:
            found = evaluation.scores.get(score)
            if found is not None and (
                found >= value if MORE_IS_BETTER.get(score, True) else found <= value
            ):
                return evaluation
        return None


class TrainingRecord(RecordBase):
    """One TrainingRun's measurement, or the reason why there is none."""

    asked = "training"
    key_words = ("training",)
    meaning = 1

    training: JudgedTrainingRun
    training_version: int = meaning
    input_label: str = ""
    input_fingerprint: str = ""
    measurement: TrainingMeasurement | None = None


class TrainingStore(Store[TrainingRecord]):
    """TrainingRecords in `<root>/<machine>/`."""

    kind = TrainingRecord


KIND = RecordKind(
    name="training",
    stores=lambda: [TrainingStore(paths.TRAINING)],
    records={"training": TrainingRecord},
)
