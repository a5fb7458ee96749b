from multigpu.placements.row import DISPATCHED, IN_GRAPH, WHOLE_STEP, Look, Placement

PLACEMENT = Placement(
    name="replicated_copy",
    title="Replicated, gradients reduced by plain copies",
    look=Look(3, "replicated, copies", "#3a92cc", ">"),
    source="001: replicated without NCCL",
    summary=(
        "Every device holds all variables; each receives every other's gradients and adds them up"
        " itself."
    ),
    variables="replica",
    reduction="copy",
    engines=(WHOLE_STEP, DISPATCHED, IN_GRAPH),
)
