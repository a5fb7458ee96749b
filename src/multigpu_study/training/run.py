"""A TrainingRun: a Run that is trained to the end of a budget, as plain data.

`multigpu.build.build_training_run` builds one that can be trained.
"""

from typing import ClassVar, Literal

from pydantic import Field

from multigpu.spec.run import Run
from multigpu.spec.schema import Spec

Law = Literal["constant", "warmup", "luong10"]


class TrainingRun(Spec):
    """A Run, its budget, its schedule, and when to evaluate and to checkpoint.
    run: the point to train; in PyTorch, a process a device or one for all devices. Its warmup_steps
        and timed_steps have no meaning here.
    steps, epochs: the budget; one of them. An epoch is the source's own: every item once (the last
        step filled up).
    base_rate: None: the rule's own. rate_scaling: "linear": base k n / reference_batch (document
        002), "none".
    schedule: see `engines.common.schedule`. warmup_epochs: of "warmup", whose start is the base
        rate. schedule_steps: of "luong10", in steps of one device.
    clip_norm: the largest norm of all gradients together, merged, that a step applies as it is
        (004: 5); None: whatever it is.
    adjust_to_devices: whether the schedule advances by the devices' joined progress (under weak
        scaling N steps of one device at once), or is unaware of them (as 004 warns of).
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

    @property
    def pace(self) -> int:
        """One device's steps that have a step's samples: N under weak scaling, 1 under strong."""
        return self.run.devices if self.run.scaling == "weak" else 1

    def budget(self, steps_per_epoch: int | None) -> int:
        if self.steps:
            return self.steps
        assert self.epochs and steps_per_epoch
        return self.epochs * steps_per_epoch

    def label(self) -> str:
        budget = f"{self.steps} steps" if self.steps else f"{self.epochs} epochs"
        if self.schedule == "constant" and self.rate_scaling == "none":
            rate = ""
        else:
            rate = f" {self.rate_scaling}-{self.schedule}"
        return f"{self.run.label()} {self.run.inputs} seed {self.run.seed} {budget}{rate}"


FIELDS = {
    **Run.model_fields,
    **{name: field for name, field in TrainingRun.model_fields.items() if name != "run"},
}
"""Of a TrainingRun and of its Run, by name."""
