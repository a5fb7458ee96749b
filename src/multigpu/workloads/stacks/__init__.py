"""Stacks of one kind of layer: document 002's fully connected model, and dense, convolutional and recurrent ones of like size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multigpu.workloads.base import Model, Workload
from multigpu.workloads.stacks.description import MODELS

if TYPE_CHECKING:
    from multigpu.inputs.batch import Source
    from multigpu.run import Run

# Inputs are imported when one is made: a Run can then be checked without them.


def _synthetic(run: Run, model: Model) -> Source:
    from multigpu.inputs.samples import synthetic_samples

    return synthetic_samples(run, model)


WORKLOAD = Workload(name="stacks", unit="samples", models=MODELS, inputs={"synthetic": _synthetic})
