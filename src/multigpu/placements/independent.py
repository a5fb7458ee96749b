"""Independent replicas."""

from multigpu.placements.row import ONE_GRAPH, Engine, Look, Placement
from multigpu.placements.semantics import Semantics

PLACEMENT = Placement(
    name="independent",
    title="Independent replicas",
    look=Look(0, "independent", "#808080", "D"),
    source="001: variable_update=independent",
    summary="Every device trains its own model and nothing travels: the ceiling of any data-parallel placement on this host.",
    variables="replica",
    merge="none",
    update="replica",
    semantics=Semantics(kind="independent"),
    engines=(
        Engine(executions=ONE_GRAPH),
        Engine(processes="one"),
        Engine(framework="tensorflow", processes="one", executions=("graph", "eager", "xla")),
    ),
)
