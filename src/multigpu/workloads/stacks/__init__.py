"""Stacks of one kind of layer: document 002's fully connected model, and dense, convolutional and
recurrent ones of like size.
"""

from multigpu.later import later
from multigpu.workloads.base import Workload
from multigpu.workloads.stacks.description import MODELS

WORKLOAD = Workload(
    name="stacks",
    unit="samples",
    models=MODELS,
    inputs={"synthetic": later("multigpu.inputs.images:synthetic_samples")},
)
