from multigpu.placements.row import DISPATCHED, Look, Placement

PLACEMENT = Placement(
    name="data_parallel",
    title="nn.DataParallel: one process sends copies each step",
    look=Look(17, "nn.DataParallel", "#c44536", "$\u25c8$"),
    source="torch nn.DataParallel, with which most begin; 001's make_parallel in PyTorch",
    summary=(
        "The first device keeps all variables. In each step it sends copies of them to the others,"
        " a thread a device computes with its copy, and gradients are added up on the first device,"
        " which updates. Tables travel whole."
    ),
    variables="gpu0",
    lookup="replica",
    copied_anew=True,
    engines=(DISPATCHED,),
)
