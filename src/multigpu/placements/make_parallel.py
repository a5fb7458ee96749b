from multigpu.placements.row import DISPATCHED, IN_GRAPH, Look, Placement

PLACEMENT = Placement(
    name="make_parallel",
    title="make_parallel, variables on the first GPU",
    look=Look(19, "make_parallel", "#b65fa0", "$\u25a4$"),
    source="001: make_parallel of kuza55 and avolkov1, Keras' multi_gpu_model",
    summary=(
        "GPU 0 slices the global batch over all, concatenates their predictions and computes one"
        " loss; its one model is trained. Images and predictions travel too."
    ),
    variables="gpu0",
    loss="gpu0",
    engines=(DISPATCHED, IN_GRAPH),
)
