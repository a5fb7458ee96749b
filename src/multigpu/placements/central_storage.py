from multigpu.placements.row import OUTSIDE_A_GRAPH, Look, Placement, by_strategy

PLACEMENT = Placement(
    name="central_storage",
    title="Central storage",
    look=Look(24, "central storage", "#b8653a", "$\u25d0$"),
    source="tf.distribute.experimental.CentralStorageStrategy; 001: parameter_server on the CPU",
    summary=(
        "Variables live in host memory; every device reads them there and sends its gradients back;"
        " the host sums and updates."
    ),
    variables="host",
    engines=(by_strategy("central_storage"),),
    refusals={
        "eager": OUTSIDE_A_GRAPH,
        "xla": "variables in host memory cannot be read from inside a compiled tower",
    },
)
