from multigpu.placements.row import NOT_CAPTURED, Look, Placement
from multigpu.spec.semantics import Semantics

PLACEMENT = Placement(
    name="staged_cpu",
    title="Parameter server on the CPU, variables staged",
    look=Look(21, "Exp2, staged", "#e0691a", "$\u25e7$"),
    source="001: parameter_server on the CPU with staged_vars",
    summary=(
        "As Exp2, but a device computes with what it fetched during the step before, while the next"
        " values are on their way."
    ),
    variables="host",
    lookup="replica",
    staged=True,
    semantics=Semantics(kind="stale", steps=1),
    engines=(NOT_CAPTURED,),
)
