from multigpu.placements.row import IN_STRATEGY, MIRRORED, Look, Placement

PLACEMENT = Placement(
    name="mirrored_hierarchical",
    title="Mirrored, hierarchical copy",
    look=Look(7, "mirrored, hierarchical", "#9a6340", "H"),
    source=(
        "tf.distribute.MirroredStrategy with HierarchicalCopyAllReduce; 001: all-reduce spec"
        " hierarchical_copy"
    ),
    summary=(
        "Every device holds all variables; gradients are summed on the first device of each half of"
        " an even number, then on the first of all, and the sum goes back the same way."
    ),
    variables="replica",
    reduction="halves",
    engines=(MIRRORED,),
    refusals=IN_STRATEGY,
)
