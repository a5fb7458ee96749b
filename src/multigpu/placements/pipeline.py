from multigpu.placements.row import Engine, Look, Placement

LAUNCHED = (
    "its schedule of sends, receives and stages is tested launched one by one, and its stages are"
    " functions of a model's sections, which no engine compiles"
)

PLACEMENT = Placement(
    name="pipeline",
    title="Stages over devices, a process each",
    look=Look(14, "pipeline, a process a stage", "#7d5a2b", "$\u2b1f$"),
    source=(
        "torch.distributed.pipelining; GPipe (Huang and others, arXiv:1811.06965), 1F1B and"
        " interleaved stages (Narayanan and others, arXiv:2104.04473)"
    ),
    summary=(
        "Consecutive layers form a stage a device, or two, each worked on by a process of its own."
        " Activations of micro-batches travel from stage to stage and their gradients back, in the"
        " order of a schedule. A table that the first and the last stage share is kept by both,"
        " which add up its gradients. Further devices hold further copies of the model."
    ),
    variables="sections",
    compute="sections",
    engines=(Engine(),),
    refusals=dict.fromkeys(("compiled", "captured", "compiled_captured"), LAUNCHED),
)
