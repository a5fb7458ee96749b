"""Ratings from reviews: document 003's two-tower model (DeepCoNN)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multigpu.stages.graph import Staged
from multigpu.workloads.base import Model, Workload
from multigpu.workloads.deepconn.description import MODELS
from multigpu.workloads.deepconn.stages import stage_arrays, stage_graph

if TYPE_CHECKING:
    from multigpu.inputs.batch import Source
    from multigpu.run import Run

# Inputs are imported when one is made: a Run can then be checked without reading a corpus's code.


def _synthetic(run: Run, model: Model) -> Source:
    from multigpu.inputs.reviews import synthetic_reviews

    return synthetic_reviews(run, model)


def _reviews(run: Run, model: Model) -> Source:
    from multigpu.inputs.reviews import review_file

    return review_file(run, model)


def _planted(run: Run, model: Model) -> Source:
    from multigpu.inputs.reviews import planted_reviews

    return planted_reviews(run, model)


WORKLOAD = Workload(
    name="deepconn",
    unit="reviews",
    models=MODELS,
    inputs={"synthetic": _synthetic, "reviews": _reviews, "planted_reviews": _planted},
    stages=Staged(stage_graph, stage_arrays),
)
