"""Replicated, merged by plain copies."""

from multigpu.placements.row import ONE_GRAPH, Engine, Look, Placement

PLACEMENT = Placement(
    name="replicated_copy",
    title="Replicated, merged by plain copies",
    look=Look(3, "replicated, copies", "#3a92cc", ">"),
    source="001: replicated without NCCL",
    summary="Every device holds all variables; each receives every other's gradients and adds them up itself.",
    variables="replica",
    merge="copy",
    update="replica",
    engines=(
        Engine(executions=ONE_GRAPH),
        Engine(processes="one"),
        Engine(framework="tensorflow", processes="one", executions=("graph", "eager", "xla")),
    ),
)
