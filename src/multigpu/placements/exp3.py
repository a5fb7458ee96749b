from multigpu.placements.row import DISPATCHED, IN_GRAPH, NOT_CAPTURED, Look, Placement

PLACEMENT = Placement(
    name="exp3",
    title="Variables balanced over GPUs, embeddings on the CPU",
    look=Look(16, "Exp3", "#cc79a7", "<"),
    source="000: Exp3",
    summary=(
        "Dense variables live on GPUs; tables live in host memory, where rows are gathered, and are"
        " updated on one GPU each."
    ),
    variables="balanced",
    embeddings="host",
    engines=(NOT_CAPTURED, DISPATCHED, IN_GRAPH),
)
