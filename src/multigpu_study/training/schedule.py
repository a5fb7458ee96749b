"""The rate of every step of a TrainingRun, from its law, its batch and its devices."""

from typing import NamedTuple

from multigpu.placements.resolve import shard_sizes
from multigpu.workloads import optimizer_of
from multigpu_study.training.run import Law, TrainingRun

HALVINGS = 10
"""luong10 halves the rate so often in its second half (tensorflow/nmt, `decay_scheme`)."""


class Schedule(NamedTuple):
    """rate(step) for step 0, 1, ...
    law: "constant"; "warmup": linear from `start` to `peak` over `length` steps, then constant;
        "luong10": `peak` for the first half of `length` steps, then ten halvings at equal
            distances, the last one holding on.
    start, peak: rates. length: in steps of one device (ignored by "constant").
    pace: one-device steps that one step of all replicas stands for: how far the schedule advances.
        1: unaware of the replicas.
    """

    law: Law
    peak: float
    start: float = 0.0
    length: int = 0
    pace: float = 1.0

    def rate(self, step: int) -> float:
        at = step * self.pace
        if self.law == "warmup" and at < self.length:
            return self.start + (self.peak - self.start) * at / self.length
        if self.law == "luong10":
            half = self.length // 2
            every = max(1, (self.length - half) // HALVINGS)
            passed = int((at - half) // every) if at >= half else 0
            return self.peak * 0.5 ** min(passed, HALVINGS)
        return self.peak


def global_batch(training: TrainingRun) -> int:
    """Items of all replicas in one step."""
    return sum(shard_sizes(training.run))


def base_rate_of(training: TrainingRun) -> float:
    """The rate before any scaling: the TrainingRun's, or the rule's own."""
    return training.base_rate or optimizer_of(training.run).rate


def schedule_of(training: TrainingRun, steps_per_epoch: int | None) -> Schedule:
    """The rate of every step. steps_per_epoch: of all replicas; None: the input has no epochs."""
    base = base_rate_of(training)
    peak = base
    if training.rate_scaling == "linear":
        peak = base * global_batch(training) / training.reference_batch
    pace = training.pace if training.adjust_to_devices else 1
    if training.schedule != "warmup":
        return Schedule(training.schedule, peak, length=training.schedule_steps, pace=pace)
    assert steps_per_epoch
    # in one-device steps: an epoch of one device has `pace` times as many
    length = training.warmup_epochs * steps_per_epoch * training.pace
    return Schedule("warmup", peak, base, length, pace)
