from multigpu.placements.row import DISPATCHED, IN_GRAPH, WHOLE_STEP, Look, Placement
from multigpu.spec.semantics import Semantics

PLACEMENT = Placement(
    name="independent",
    title="Independent replicas",
    look=Look(0, "independent", "#808080", "D"),
    source="001: variable_update=independent",
    summary=(
        "Every device trains its own model and nothing travels: the ceiling of any data-parallel"
        " placement on this host."
    ),
    variables="replica",
    reduction="none",
    semantics=Semantics(kind="independent"),
    engines=(WHOLE_STEP, DISPATCHED, IN_GRAPH),
)
