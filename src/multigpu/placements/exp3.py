"""Variables sharded over GPUs, embeddings on the CPU."""

from multigpu.placements.row import HOST_IN_THE_MIDDLE, Engine, Look, Placement

PLACEMENT = Placement(
    name="exp3",
    title="Variables sharded over GPUs, embeddings on the CPU",
    look=Look(16, "Exp3", "#cc79a7", "<"),
    source="000: Exp3",
    summary="Dense variables live on GPUs; tables live in host memory, where rows are gathered, and are updated on one GPU each.",
    variables="sharded",
    embeddings="host",
    merge="sharded",
    update="sharded",
    engines=(
        Engine(executions=("eager", "compiled")),
        Engine(processes="one"),
        Engine(framework="tensorflow", processes="one", executions=("graph", "eager", "xla")),
    ),
    refusals={"captured": HOST_IN_THE_MIDDLE, "compiled_captured": HOST_IN_THE_MIDDLE},
)
