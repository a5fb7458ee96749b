from multigpu.placements.row import Look, Placement, by_strategy
from multigpu.spec.semantics import Semantics

PLACEMENT = Placement(
    name="parameter_server_async",
    title="Parameter server, asynchronous",
    look=Look(29, "server, asynchronous", "#c2567f", "$\u25d1$"),
    source="tf.distribute.ParameterServerStrategy with ClusterCoordinator; 002: async",
    summary=(
        "A server process holds all variables in host memory; a worker process a device reads them,"
        " computes one shard's gradient and has it applied without waiting for others."
    ),
    variables="host",
    semantics=Semantics(kind="asynchronous"),
    engines=(by_strategy("parameter_server", "per_device"),),
    refusals={
        "eager": "the coordinator schedules functions: it traces each as a graph",
        "xla": "variables of another process cannot be read from inside a compiled function",
    },
)
