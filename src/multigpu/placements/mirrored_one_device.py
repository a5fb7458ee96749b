from multigpu.placements.row import IN_STRATEGY, MIRRORED, Look, Placement

PLACEMENT = Placement(
    name="mirrored_one_device",
    title="Mirrored, reduction to one device",
    look=Look(8, "mirrored, one device", "#8f5fb0", "8"),
    source="tf.distribute.MirroredStrategy with ReductionToOneDevice",
    summary=(
        "Every device holds all variables; gradients are copied to the first device and summed"
        " there, and the sum is copied back."
    ),
    variables="replica",
    reduction="gpu0",
    engines=(MIRRORED,),
    refusals=IN_STRATEGY,
)
