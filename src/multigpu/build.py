"""Build a Run that can be measured: look up its placement and its model, and judge it by
`spec.rules`.
"""

from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator

from multigpu.placements import find_placement
from multigpu.placements.row import Placement
from multigpu.placements.stage_split import SplitPlacement
from multigpu.spec.errors import Refused
from multigpu.spec.rules import judge
from multigpu.spec.rules.case import Case, Stages
from multigpu.spec.run import Run
from multigpu.spec.schema import in_one_line
from multigpu.workloads import description_of, workloads
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
        staged_workloads=lambda: [name for name, other in workloads().items() if other.stages],
    )
