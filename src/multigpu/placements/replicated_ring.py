from multigpu.placements.row import KERNEL_BY_KERNEL, Look, Placement

PLACEMENT = Placement(
    name="replicated_ring",
    title="Replicated, gradients reduced by a ring written out",
    look=Look(4, "replicated, ring", "#7d8a2e", "$\u25d2$"),
    source="002: ring all-reduce",
    summary=(
        "Every device holds all variables; after backward, gradients go around a ring of sends and"
        " receives, a P-th at a time."
    ),
    variables="replica",
    reduction="all_reduce",
    algorithm="ring",
    refusals=KERNEL_BY_KERNEL,
)
