"""Build a TrainingRun that can be trained: its Run as `multigpu.build` does, its budget judged by
`rules`.
"""

import importlib.util
from typing import Annotated, Any

from pydantic import AfterValidator

from multigpu.build import build_run, judged
from multigpu.placements import find_placement
from multigpu.spec.run import Run
from multigpu.spec.schema import in_one_line
from multigpu_study.training.rules import TrainingCase, judge_training
from multigpu_study.training.run import FIELDS, TrainingRun
from multigpu_study.training.scores import module_of


def build_training_run(**fields: Any) -> TrainingRun:
    """As `build_run`, from the fields of a TrainingRun and those of its Run."""
    names = [name for name in fields if name in FIELDS and name not in Run.model_fields]
    budget = {name: fields.pop(name) for name in names}
    training = TrainingRun.built(run=build_run(**fields), **budget)
    try:
        return judged_training(training)
    except ValueError as error:
        raise ValueError(in_one_line(str(error))) from None


def judged_training(training: TrainingRun) -> TrainingRun:
    """The TrainingRun itself, if it can be trained; a ValueError says why not."""
    run = judged(training.run)
    judge_training(
        TrainingCase(
            training=training,
            row=find_placement(run.placement),
            # looked for and not imported, which needs the framework
            can_evaluate=lambda: importlib.util.find_spec(module_of(run.workload)) is not None,
        )
    )
    return training


JudgedTrainingRun = Annotated[TrainingRun, AfterValidator(judged_training)]
"""The type of a TrainingRun that is read from a file."""
