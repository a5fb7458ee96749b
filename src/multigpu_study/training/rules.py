"""Rules of a Run that is trained to the end of a budget."""

from collections.abc import Callable
from dataclasses import dataclass

from multigpu.spec.errors import Refused
from multigpu.spec.row import Row
from multigpu.spec.rules.inputs import DRAWN_ANEW
from multigpu.spec.run import Run
from multigpu_study.training.run import TrainingRun

COUNTED = ("warmup_steps", "timed_steps", "traced_steps", "traced_from", "energy_window_s")
"""Fields of a Run that a budget of steps or epochs takes the place of."""


@dataclass(frozen=True)
class TrainingCase:
    """A TrainingRun, its placement's row, and whether its workload can score what it trained."""

    training: TrainingRun
    row: Row
    can_evaluate: Callable[[], bool]


def framework(case: TrainingCase) -> None:
    """PyTorch alone trains to the end."""
    run = case.training.run
    if run.framework == "torch":
        return
    raise Refused(
        f"training to the end of a budget runs in 'torch' alone, not in {run.framework!r}: leave"
        " out framework"
    )


def placement(case: TrainingCase) -> None:
    """Every device trains a replica, and would train the same again."""
    run, row = case.training.run, case.row
    if not row.semantics.facts.is_reproducible:
        # how old its gradients are depends on who comes when: `multigpu_study.synchrony` counts
        # ages and repeats
        raise Refused(
            f"placement {run.placement!r} is {row.semantics.kind}: training takes one that would"
            " train the same again"
        )
    if row.compute != "replica":
        raise Refused(
            f"placement {run.placement!r} splits one model over devices: training takes one that"
            " gives every device a replica"
        )


def clip_norm(case: TrainingCase) -> None:
    """A norm of all gradients needs them in one place before the update."""
    run, clip = case.training.run, case.training.clip_norm
    if not clip or (case.row.update == "replica" and "captured" not in run.execution):
        return
    raise Refused(
        f"clip_norm {clip:g} needs all merged gradients in one place before the update: choose a"
        " placement that updates all variables on every replica, not"
        f" {run.placement!r}, and no captured steps"
    )


def meaning(case: TrainingCase) -> None:
    """Fields that say how long is measured have no meaning."""
    run = case.training.run
    for name in COUNTED:
        value = getattr(run, name)
        if value != Run.model_fields[name].default:
            raise Refused(
                f"{name} {value} has no meaning in training, which counts steps or epochs: leave it"
                " out"
            )
    if run.host_cores:
        raise Refused(
            f"host_cores {run.host_cores} has no meaning in training, which uses the whole host:"
            " leave it out"
        )


def budget(case: TrainingCase) -> None:
    """A budget is of steps or of epochs, and only a data set has epochs."""
    training = case.training
    if (training.steps is None) == (training.epochs is None):
        both = ", not both" if training.steps else ""
        raise Refused(f"a budget is needed: give either steps or epochs{both}")
    if training.run.inputs not in DRAWN_ANEW:
        return
    counted = "warmup_epochs" if training.schedule == "warmup" else ""
    if training.epochs:
        counted = "epochs"
    if not counted:
        return
    raise Refused(
        f"inputs {training.run.inputs!r} has no epochs to count: give steps and no {counted}, or"
        " choose a data set"
    )


def evaluation(case: TrainingCase) -> None:
    """A model is scored by its workload."""
    if not case.training.evaluate_every or case.can_evaluate():
        return
    raise Refused(
        f"workload {case.training.run.workload!r} has nothing to score it: leave out evaluate_every"
    )


TRAINING_RULES: tuple[Callable[[TrainingCase], None], ...] = (
    framework,
    placement,
    clip_norm,
    meaning,
    budget,
    evaluation,
)
"""In the order in which they are asked."""


def judge_training(case: TrainingCase) -> None:
    """Refuse (`Refused`, by the first rule that does) a TrainingRun that cannot be trained."""
    for rule in TRAINING_RULES:
        rule(case)
