from multigpu.placements.row import OUTSIDE_A_GRAPH, OWN_COLLECTIVE, Engine, Look, Placement

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
    engines=(
        Engine(framework="tensorflow", processes="one", executions=("graph",), strategy="mirrored"),
    ),
    refusals={"eager": OUTSIDE_A_GRAPH, "xla": OWN_COLLECTIVE},
)
