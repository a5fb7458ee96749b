"""A TrainingRun: a Run that is trained to the end of a budget, frozen and validated when it is
built. Imports no framework.
"""

import importlib.util
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from multigpu.placements import find_placement
from multigpu.run import Run, build_run
from multigpu.schema import Asked
from multigpu.workloads import part_of

Law = Literal["constant", "warmup", "luong10"]

HALVINGS = 10
"""luong10 halves the rate so often in the second half of its steps (tensorflow/nmt,
`decay_scheme`).
"""


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


DRAWN_ANEW = ("synthetic", "lengths_000", "bucket_means_000", "planted_reviews")
"""Inputs without a data set: nothing to cover in an epoch, nothing held out."""


class TrainingRun(Asked):
    """A Run, its budget, its schedule, and when to evaluate and to checkpoint.
    run: the point to train; in PyTorch, a process a device or one for all devices. Its warmup_steps
        and timed_steps have no meaning here.
    steps, epochs: the budget; one of them. An epoch is the source's own: every item once (the last
        step filled up).
    base_rate: None: the rule's own. rate_scaling: "linear": base k n / reference_batch (document
        002), "none".
    schedule: see `Schedule`. warmup_epochs: of "warmup", whose start is the base rate.
        schedule_steps: of "luong10", in steps of one
    device.
    clip_norm: the largest norm of all gradients together, merged, that a step applies as it is
        (004: 5); None: whatever it is.
    adjust_to_devices: whether the schedule advances by the devices' joined progress (under weak
        scaling N steps of one device at once), or
    is unaware of them (as 004 warns of).
    evaluate_every, checkpoint_every: steps; None: at the end only, and never. log_every: steps
        whose mean loss is one point of the curve.
    """

    framework: ClassVar[str] = "torch"

    run: Run
    steps: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    base_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    rate_scaling: Literal["none", "linear"] = "none"
    reference_batch: int = Field(default=256, ge=1)
    schedule: Law = "constant"
    warmup_epochs: int = Field(default=5, ge=1)
    schedule_steps: int = Field(default=10_000, ge=1)
    clip_norm: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    adjust_to_devices: bool = True
    evaluate_every: int | None = Field(default=None, ge=1)
    checkpoint_every: int | None = Field(default=None, ge=1)
    log_every: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        run, plain = self.run, Run.model_fields
        if run.framework != "torch":
            raise ValueError(
                f"training to the end of a budget runs in 'torch' alone, not in {run.framework!r}:"
                " leave out framework"
            )
        if not run.semantics.facts.is_reproducible:
            # how old its gradients are depends on who comes when: `multigpu.synchrony` counts ages
            # and repeats
            raise ValueError(
                f"placement {run.placement!r} is {run.semantics.kind}: training takes one that"
                " would train the same again"
            )
        if find_placement(run.placement).compute != "replica":
            raise ValueError(
                f"placement {run.placement!r} splits one model over devices: training takes one"
                " that gives every device a replica"
            )
        if self.clip_norm and (
            find_placement(run.placement).update != "replica" or "captured" in run.execution
        ):
            raise ValueError(
                f"clip_norm {self.clip_norm:g} needs all merged gradients in one place before the"
                " update: choose a placement that updates all variables on every replica, not"
                f" {run.placement!r}, and no captured steps"
            )
        for name in (
            "warmup_steps",
            "timed_steps",
            "traced_steps",
            "traced_from",
            "energy_window_s",
        ):
            if getattr(run, name) != plain[name].default:
                raise ValueError(
                    f"{name} {getattr(run, name)} has no meaning in training, which counts steps or"
                    " epochs: leave it out"
                )
        if run.host_cores:
            raise ValueError(
                f"host_cores {run.host_cores} has no meaning in training, which uses the whole"
                " host: leave it out"
            )
        if (self.steps is None) == (self.epochs is None):
            raise ValueError(
                "a budget is needed: give either steps or epochs"
                + (", not both" if self.steps else "")
            )
        if run.inputs in DRAWN_ANEW:
            counted = (
                "epochs" if self.epochs else "warmup_epochs" if self.schedule == "warmup" else ""
            )
            if counted:
                raise ValueError(
                    f"inputs {run.inputs!r} has no epochs to count: give steps and no {counted}, or"
                    " choose a data set"
                )
        # looked for and not imported, which needs the framework
        if (
            self.evaluate_every
            and importlib.util.find_spec(part_of(run.workload, "evaluate")) is None
        ):
            raise ValueError(
                f"workload {run.workload!r} has no evaluate.py to score it: leave out"
                " evaluate_every"
            )
        return self

    @property
    def joined_batch(self) -> int:
        """Items of all replicas in one step."""
        return sum(self.run.shard_sizes)

    @property
    def pace(self) -> int:
        """Steps of one device that a step stands for in samples: N under weak scaling, 1 under
        strong.
        """
        return self.run.devices if self.run.scaling == "weak" else 1

    @property
    def base(self) -> float:
        """The rate before any scaling."""
        return self.base_rate or self.run.rule.rate

    def schedule_of(self, steps_per_epoch: int | None) -> Schedule:
        """The rate of every step. steps_per_epoch: of all replicas together; None where the input
        has no epochs.
        """
        peak = (
            self.base * self.joined_batch / self.reference_batch
            if self.rate_scaling == "linear"
            else self.base
        )
        pace = self.pace if self.adjust_to_devices else 1
        if self.schedule == "warmup":
            assert steps_per_epoch
            # in one-device steps: an epoch of one device has `self.pace` times as many
            return Schedule(
                "warmup", peak, self.base, self.warmup_epochs * steps_per_epoch * self.pace, pace
            )
        return Schedule(self.schedule, peak, length=self.schedule_steps, pace=pace)

    def budget(self, steps_per_epoch: int | None) -> int:
        if self.steps:
            return self.steps
        assert self.epochs and steps_per_epoch
        return self.epochs * steps_per_epoch

    def label(self) -> str:
        budget = f"{self.steps} steps" if self.steps else f"{self.epochs} epochs"
        rate = (
            ""
            if self.schedule == "constant" and self.rate_scaling == "none"
            else f" {self.rate_scaling}-{self.schedule}"
        )
        return f"{self.run.label()} {self.run.inputs} seed {self.run.seed} {budget}{rate}"


FIELDS = {
    **Run.model_fields,
    **{name: field for name, field in TrainingRun.model_fields.items() if name != "run"},
}
"""Of a TrainingRun and of its Run, by name."""


def build_training_run(**fields: Any) -> TrainingRun:
    """As `TrainingRun.built`, from its own fields and those of its Run."""
    own = {
        name: fields.pop(name)
        for name in list(fields)
        if name in FIELDS and name not in Run.model_fields
    }
    return TrainingRun.built(run=build_run(**fields), **own)
