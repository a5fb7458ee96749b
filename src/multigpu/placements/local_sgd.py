from multigpu.placements.row import NOT_CAPTURED, Look, Placement
from multigpu.spec.semantics import Semantics

TWO_STEPS = "one step in several averages, and a graph replays one and the same step"

PLACEMENT = Placement(
    name="local_sgd",
    look=Look(10, "local SGD", "#2e8b9a", "$\u25a8$"),
    title="Local updates, averaged every few steps",
    source="local SGD (Stich, 2019); federated averaging (McMahan et al., 2017)",
    summary=(
        "Every device trains a copy of the model on its own shard, with optimiser’s states of its"
        " own. After every so many steps (a Run’s local_steps) an all-reduce gives all of them the"
        " mean of their variables."
    ),
    variables="replica",
    reduction="average",
    semantics=Semantics(kind="averaged", every=5),
    engines=(NOT_CAPTURED,),
    refusals={"captured": TWO_STEPS, "compiled_captured": TWO_STEPS},
)
