from multigpu.placements.row import WHOLE_STEP, Look, Placement

PLACEMENT = Placement(
    name="ddp",
    title="Replicated, overlapped all-reduce",
    look=Look(1, "ddp", "#0072b2", "o"),
    source="torch DistributedDataParallel; 004's one process a GPU; 001's horovod",
    summary=(
        "Every device holds all variables; gradients are summed by bucketed all-reduce while"
        " backward still runs."
    ),
    variables="replica",
    reduction="all_reduce",
    overlap=True,
    engines=(WHOLE_STEP,),
)
