from multigpu.placements.row import DISPATCHED, IN_GRAPH, WHOLE_STEP, Look, Placement

PLACEMENT = Placement(
    name="exp4",
    title="Variables and embeddings balanced over GPUs",
    look=Look(15, "Exp4", "#009e73", "s"),
    source="000: Exp4",
    summary=(
        "Each variable lives on one GPU (greedy least load), which sends it to the others, sums"
        " their gradients and updates it."
    ),
    variables="balanced",
    engines=(WHOLE_STEP, DISPATCHED, IN_GRAPH),
)
