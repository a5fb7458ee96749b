"""Mirrored, reduction to one device."""

from multigpu.placements.row import Engine, Look, Placement

PLACEMENT = Placement(
    name="mirrored_one_device",
    title="Mirrored, reduction to one device",
    look=Look(8, "mirrored, one device", "#8f5fb0", "8"),
    source="tf.distribute.MirroredStrategy with ReductionToOneDevice",
    summary="Every device holds all variables; gradients are copied to the first device and summed there, and the sum is copied back.",
    variables="replica",
    merge="gpu0",
    update="replica",
    engines=(Engine(framework="tensorflow", processes="one", executions=("graph",), strategy="mirrored"),),
    refusals={
        "eager": "strategy.run belongs inside one tf.function: eagerly it would dispatch replica after replica",
        "xla": "compiled, the strategy would put its own collective in place of the merge that the row names",
    },
)
