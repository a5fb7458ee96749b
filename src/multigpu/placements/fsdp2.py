from multigpu.placements.row import WHOLE_STEP, Look, Placement

PLACEMENT = Placement(
    name="fsdp2",
    look=Look(12, "FSDP2", "#a8572d", "$\u25a9$"),
    title="Everything sharded, gathered for each use",
    source="torch fully_shard (FSDP2); ZeRO stage 3 (Rajbhandari et al., 2020)",
    summary=(
        "Every device keeps a piece of each variable, of its gradient and of the optimiser’s"
        " states. An all-gather brings together the variables of a part of the model (each of"
        " its repeated blocks, and the rest) before its forward pass. Unless they are kept, they"
        " are freed after it and gathered again before its backward pass. A reduce-scatter sums"
        " its gradients while backward goes on."
    ),
    variables="sharded",
    lookup="replica",
    reduction="reduce_scatter",
    overlap=True,
    engines=(WHOLE_STEP,),
)
