"""Variables sharded over GPUs, embeddings on the CPU."""

from multigpu.placements.row import Engine, Placement

PLACEMENT = Placement(
    name="exp3",
    title="Variables sharded over GPUs, embeddings on the CPU",
    source="000: Exp3",
    summary="Dense variables live on GPUs; tables live in host memory, where rows are gathered, and are updated on one GPU each.",
    variables="sharded",
    embeddings="host",
    lookup="host",
    merge="sharded",
    slots="sharded",
    update="sharded",
    travels="rows",
    engines=(Engine(), Engine(framework="tensorflow", processes="one", executions=("graph", "eager", "xla"))),
)
