from multigpu.placements.row import DISPATCHED, Look, Placement

PLACEMENT = Placement(
    name="layer_split",
    title="Pipeline: layers over devices",
    look=Look(14, "pipeline", "#a0522d", "h"),
    source=(
        "004: tensorflow/nmt's num_gpus; 002: model parallelism; micro-batches as in GPipe (Huang"
        " and others, arXiv:1811.06965)"
    ),
    summary=(
        "Consecutive layers form a stage a device; activations travel from stage to stage and their"
        " gradients back, micro-batch by micro-batch. Further devices hold further copies of the"
        " model."
    ),
    variables="sections",
    compute="sections",
    engines=(DISPATCHED,),
)
