from multigpu.placements.row import DISPATCHED, IN_GRAPH, NOT_CAPTURED, Look, Placement

PLACEMENT = Placement(
    name="exp1",
    title="Variables and embeddings on the CPU, update on GPUs",
    look=Look(23, "Exp1", "#aa3377", "v"),
    source="000: Exp1",
    summary=(
        "Variables live in host memory; devices pull them; one GPU a variable sums its gradients,"
        " updates it and writes it back."
    ),
    variables="host",
    update="balanced",
    engines=(NOT_CAPTURED, DISPATCHED, IN_GRAPH),
)
