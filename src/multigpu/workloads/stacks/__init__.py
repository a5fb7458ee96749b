"""Stacks of one kind of layer: document 002's dense model, and others of like size."""

from multigpu.lazy import lazy
from multigpu.workloads.base import Workload
from multigpu.workloads.stacks.description import MODELS

WORKLOAD = Workload(
    name="stacks",
    unit="samples",
    models=MODELS,
    inputs={"synthetic": lazy("multigpu.inputs.images:synthetic_samples")},
)
