from multigpu.placements.row import WHOLE_STEP, Look, Placement

PLACEMENT = Placement(
    name="zero1",
    look=Look(11, "zero1", "#5c9b1e", "$\u25a6$"),
    title="Replicated variables, sharded optimiser states",
    source="ZeRO stage 1 (Rajbhandari et al., 2020); torch ZeroRedundancyOptimizer",
    summary=(
        "Every device holds all variables. When backward has ended, a reduce-scatter sums a stretch"
        " of the gradients on each device, which alone keeps the optimiser’s states of that stretch"
        " and updates it. An all-gather brings the new values to all."
    ),
    variables="replica",
    reduction="reduce_scatter",
    update="sharded",
    engines=(WHOLE_STEP,),
)
