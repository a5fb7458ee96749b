from multigpu.placements.row import Engine, Look, Placement
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
    engines=(
        Engine(
            framework="tensorflow",
            processes="per_device",
            executions=("graph",),
            strategy="parameter_server",
        ),
    ),
    refusals={
        "eager": "the coordinator schedules functions: it traces each as a graph",
        "xla": "variables of another process cannot be read from inside a compiled function",
    },
)
