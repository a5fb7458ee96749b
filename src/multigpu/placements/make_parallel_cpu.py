from multigpu.placements.row import DISPATCHED, IN_GRAPH, Look, Placement

PLACEMENT = Placement(
    name="make_parallel_cpu",
    title="make_parallel, parameters on the host",
    look=Look(22, "make_parallel, CPU", "#b0506a", "$\u25a5$"),
    source="001: make_parallel; Keras' multi_gpu_model with its model under /cpu:0",
    summary=(
        "As make_parallel, but its one model lives and is updated in host memory. Images and"
        " predictions travel too."
    ),
    variables="host",
    loss="gpu0",
    engines=(DISPATCHED, IN_GRAPH),
)
