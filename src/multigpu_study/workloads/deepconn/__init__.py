"""Ratings from reviews: document 003's two-tower model (DeepCoNN)."""

from multigpu.lazy import lazy
from multigpu.spec.stage_graph import Staged
from multigpu.workloads.base import Workload
from multigpu_study.workloads.deepconn.description import MODELS, stage_arrays, stage_graph

WORKLOAD = Workload(
    name="deepconn",
    unit="reviews",
    models=MODELS,
    inputs={
        "synthetic": lazy("multigpu_study.workloads.deepconn.reviews:DrawnReviews"),
        "planted_reviews": lazy("multigpu_study.workloads.deepconn.reviews:PlantedReviews"),
    },
    stages=Staged(stage_graph, stage_arrays),
)
