from multigpu.placements.row import OUTSIDE_A_GRAPH, OWN_COLLECTIVE, Engine, Look, Placement

PLACEMENT = Placement(
    name="mirrored_hierarchical",
    title="Mirrored, hierarchical copy",
    look=Look(7, "mirrored, hierarchical", "#9a6340", "H"),
    source=(
        "tf.distribute.MirroredStrategy with HierarchicalCopyAllReduce; 001: all-reduce spec"
        " hierarchical_copy"
    ),
    summary=(
        "Every device holds all variables; gradients are summed on the first device of each half of"
        " an even number, then on the first of all, and the sum goes back the same way."
    ),
    variables="replica",
    reduction="halves",
    engines=(
        Engine(framework="tensorflow", processes="one", executions=("graph",), strategy="mirrored"),
    ),
    refusals={"eager": OUTSIDE_A_GRAPH, "xla": OWN_COLLECTIVE},
)
