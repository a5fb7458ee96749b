from multigpu.placements.row import Look, Placement

PLACEMENT = Placement(
    name="tensor_split",
    title="Tensor parallel: matrices over devices",
    look=Look(13, "tensor parallel", "#7a4fb5", "p"),
    source=(
        "002: model parallelism; the pairs of Megatron-LM (Shoeybi and others, arXiv:1909.08053)"
    ),
    summary=(
        "Every device holds a part of each layer's matrix and computes with the whole batch;"
        " partial sums are joined within the layers. Further devices hold further copies of the"
        " model."
    ),
    variables="split",
    compute="split",
)
