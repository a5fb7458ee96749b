from multigpu.placements.row import IN_STRATEGY, MIRRORED, Look, Placement

PLACEMENT = Placement(
    name="mirrored_nccl",
    title="Mirrored, NCCL",
    look=Look(6, "mirrored, NCCL", "#4f7fb8", "d"),
    source="tf.distribute.MirroredStrategy with NcclAllReduce; 001: replicated with NCCL",
    summary=(
        "Every device holds all variables; gradients, packed into one message, are summed by NCCL,"
        " on CPUs by TensorFlow's ring."
    ),
    variables="replica",
    reduction="all_reduce",
    engines=(MIRRORED,),
    refusals=IN_STRATEGY,
)
