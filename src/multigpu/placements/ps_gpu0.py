from multigpu.placements.row import DISPATCHED, IN_GRAPH, WHOLE_STEP, Look, Placement

PLACEMENT = Placement(
    name="ps_gpu0",
    title="Parameter server on the first GPU",
    look=Look(17, "server on GPU 0", "#b07a00", "P"),
    source="001: parameter_server on the GPU",
    summary=(
        "All variables live on GPU 0, which sends them to the others, sums their gradients and"
        " updates."
    ),
    variables="gpu0",
    engines=(WHOLE_STEP, DISPATCHED, IN_GRAPH),
)
