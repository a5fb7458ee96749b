"""Build a Run that can be measured, or one that can be trained: look up its placement and its
model, and judge it by `spec.rules`.
"""

import importlib.util
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator

from multigpu.placements import find_placement
from multigpu.placements.row import Placement
from multigpu.placements.stage_split import SplitPlacement
from multigpu.spec.errors import Refused
from multigpu.spec.rules import judge
from multigpu.spec.rules.case import Case, Stages
from multigpu.spec.rules.training import TrainingCase, judge_training
from multigpu.spec.run import Run
from multigpu.spec.schema import in_one_line
from multigpu.spec.training import FIELDS as TRAINING_FIELDS
from multigpu.spec.training import TrainingRun
from multigpu.workloads import description_of, part_of, workloads
from multigpu.workloads.stages import places_of


def build_run(**fields: Any) -> Run:
    """Build a Run of these fields. `Refused` says in one sentence which is unknown, of a wrong type
    or of a value that cannot work.
    """
    try:
        return judged(Run.built(**fields))
    except ValueError as error:
        raise Refused(in_one_line(str(error))) from None


def judged(run: Run) -> Run:
    """The Run itself, if it can be measured; a ValueError says why not."""
    judge(case_of(run))
    return run


JudgedRun = Annotated[Run, AfterValidator(judged)]
"""The type of a Run that is read from a file: as `judged`, whoever wrote it."""


def build_training_run(**fields: Any) -> TrainingRun:
    """As `build_run`, from the fields of a TrainingRun and those of its Run."""
    names = [name for name in fields if name in TRAINING_FIELDS and name not in Run.model_fields]
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
            can_evaluate=partial(_can_evaluate, run.workload),
        )
    )
    return training


JudgedTrainingRun = Annotated[TrainingRun, AfterValidator(judged_training)]
"""The type of a TrainingRun that is read from a file."""


def _can_evaluate(workload: str) -> bool:
    # looked for and not imported, which needs the framework
    return importlib.util.find_spec(part_of(workload, "evaluate")) is not None


def case_of(run: Run) -> Case:
    """The Run with all that judges it; a ValueError where its model or its placement is unknown."""
    model = description_of(run)
    row = find_placement(run.placement)
    workload = workloads()[run.workload]
    return Case(
        run=run,
        row=row,
        model=model,
        frameworks=workload.frameworks,
        inputs=tuple(workload.inputs),
        stages=_stages_of(run, row),
    )


def _stages_of(run: Run, row: Placement) -> Stages | None:
    if not isinstance(row, SplitPlacement):
        return None
    is_staged = workloads()[run.workload].stages is not None
    return Stages(
        at_most=row.at_most,
        by_digits=row.split == "digits",
        places=partial(places_of, run) if is_staged else None,
        staged_workloads=_staged_workloads,
    )


def _staged_workloads() -> list[str]:
    return [name for name, workload in workloads().items() if workload.stages]
