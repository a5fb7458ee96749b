from multigpu.placements.row import WHOLE_STEP, Look, Placement

PLACEMENT = Placement(
    name="zero2",
    look=Look(11, "zero2", "#3f7d20", "$\u25a7$"),
    title="Replicated variables, sharded gradients and optimiser states",
    source="ZeRO stage 2 (Rajbhandari et al., 2020)",
    summary=(
        "Every device holds all variables. While backward goes on, a reduce-scatter sums each"
        " bucket of gradients, of which a device keeps a stretch and frees the rest; it alone keeps"
        " the optimiser’s states of its stretches and updates them. An all-gather for each bucket"
        " brings the new values to all."
    ),
    variables="replica",
    reduction="reduce_scatter",
    update="sharded",
    overlap=True,
    engines=(WHOLE_STEP,),
)
