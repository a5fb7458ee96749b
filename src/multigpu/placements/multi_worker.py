from multigpu.placements.row import IN_STRATEGY, Look, Placement, by_strategy

PLACEMENT = Placement(
    name="multi_worker",
    title="Mirrored over processes",
    look=Look(9, "multi-worker", "#3f8f6b", "*"),
    source="tf.distribute.MultiWorkerMirroredStrategy; 001: collective_all_reduce",
    summary=(
        "One process a device, each with all variables; gradients are summed by NCCL between the"
        " processes, on CPUs by TensorFlow's ring over gRPC."
    ),
    variables="replica",
    reduction="all_reduce",
    engines=(by_strategy("multi_worker", "per_device"),),
    refusals=IN_STRATEGY,
)
