"""Ratings from reviews: document 003's two-tower model (DeepCoNN)."""

from multigpu.later import later
from multigpu.spec.stage_graph import Staged
from multigpu.workloads.base import Workload
from multigpu.workloads.deepconn.description import MODELS, stage_arrays, stage_graph

WORKLOAD = Workload(
    name="deepconn",
    unit="reviews",
    models=MODELS,
    inputs={
        "synthetic": later("multigpu.inputs.reviews:DrawnReviews"),
        "reviews": later("multigpu.inputs.reviews:review_file"),
        "planted_reviews": later("multigpu.inputs.reviews:planted_reviews"),
    },
    stages=Staged(stage_graph, stage_arrays),
)
