from multigpu.placements.row import DISPATCHED, WHOLE_STEP, Engine, Look, Placement

PLACEMENT = Placement(
    name="replicated_allreduce",
    title="Replicated, all-reduce after backward",
    look=Look(2, "all-reduce, no overlap", "#6a5acd", "X"),
    source="001: replicated with NCCL; 004",
    summary=(
        "Every device holds all variables; when backward has ended, one all-reduce sums all"
        " gradients."
    ),
    variables="replica",
    reduction="all_reduce",
    engines=(
        WHOLE_STEP,
        DISPATCHED,
        Engine(framework="tensorflow", processes="one", executions=("graph", "xla")),
    ),
    refusals={
        "eager": (
            "one thread would wait in the first device's collective for devices that it has yet to"
            " reach"
        )
    },
)
