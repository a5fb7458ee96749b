from multigpu.placements.row import OUTSIDE_A_GRAPH, OWN_COLLECTIVE, Engine, Look, Placement

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
    engines=(
        Engine(framework="tensorflow", processes="one", executions=("graph",), strategy="mirrored"),
    ),
    refusals={"eager": OUTSIDE_A_GRAPH, "xla": OWN_COLLECTIVE},
)
