from multigpu.placements.row import WHOLE_STEP, Look, Placement
from multigpu.spec.semantics import Semantics

PLACEMENT = Placement(
    name="staged_gpu0",
    title="Parameter server on the first GPU, variables staged",
    look=Look(18, "server on GPU 0, staged", "#96703a", "$\u25e8$"),
    source="001: parameter_server on the GPU with staged_vars",
    summary=(
        "GPU 0 holds all variables, sums and updates; devices compute with what it sent during the"
        " step before."
    ),
    variables="gpu0",
    lookup="replica",
    staged=True,
    semantics=Semantics(kind="stale", steps=1),
    engines=(WHOLE_STEP,),
)
