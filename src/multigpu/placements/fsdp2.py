from multigpu.placements.row import Engine, Look, Placement

HOOKS = (
    "the library gathers and frees variables in hooks around the model's parts, which"
    " torch.compile's programs of these do not hold"
)
STREAMS = (
    "the library gathers and frees variables on streams and by events of its own, which are not"
    " built to be recorded in a graph"
)

PLACEMENT = Placement(
    name="fsdp2",
    look=Look(12, "FSDP2", "#a8572d", "$\u25a9$"),
    title="Everything sharded, gathered for each use",
    source="torch fully_shard (FSDP2); ZeRO stage 3 (Rajbhandari et al., 2020)",
    summary=(
        "Every device keeps a piece of each variable, of its gradient and of the optimiser’s"
        " states. An all-gather brings together the variables of a part of the model before its"
        " forward and again before its backward, each time for that long; a reduce-scatter sums its"
        " gradients while backward goes on."
    ),
    variables="sharded",
    lookup="replica",
    reduction="reduce_scatter",
    overlap=True,
    engines=(Engine(),),
    refusals={"compiled": HOOKS, "captured": STREAMS, "compiled_captured": STREAMS},
)
