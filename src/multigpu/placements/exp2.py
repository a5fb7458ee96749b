from multigpu.placements.row import DISPATCHED, IN_GRAPH, NOT_CAPTURED, Look, Placement

PLACEMENT = Placement(
    name="exp2",
    title="Variables, embeddings and update on the CPU",
    look=Look(20, "Exp2", "#d55e00", "^"),
    source="000: Exp2; 001: parameter_server on the CPU",
    summary=(
        "Variables live in host memory; devices pull them and push gradients; the host merges and"
        " updates."
    ),
    variables="host",
    engines=(NOT_CAPTURED, DISPATCHED, IN_GRAPH),
)
