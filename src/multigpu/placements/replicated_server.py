from multigpu.placements.row import KERNEL_BY_KERNEL, Look, Placement

PLACEMENT = Placement(
    name="replicated_server",
    title="Replicated, gradients reduced by a central server",
    look=Look(5, "replicated, server", "#d1497a", "$\u25d3$"),
    source="002: parameter server",
    summary=(
        "Every device holds all variables; after backward, the first receives all gradients, adds"
        " them up and sends the sum back."
    ),
    variables="replica",
    reduction="all_reduce",
    algorithm="central_server",
    refusals=KERNEL_BY_KERNEL,
)
