"""Models of users: whatever `multigpu.compare` was given, described when it was first seen (`description.Models`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multigpu.workloads.base import Model, Workload
from multigpu.workloads.own.description import Models

if TYPE_CHECKING:
    from multigpu.inputs.batch import Source
    from multigpu.run import Run

# Inputs are imported when one is made: a Run can then be checked without them.


def _batches(run: Run, model: Model) -> Source:
    from multigpu.workloads.own.batches import OwnBatches

    return OwnBatches(run, model)


WORKLOAD = Workload(name="own", unit="samples", models=Models(), inputs={"own": _batches}, checked=True)
