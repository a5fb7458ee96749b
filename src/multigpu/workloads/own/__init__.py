"""Models of users, given to `multigpu.compare` and described there (`description.Models`)."""

from multigpu.lazy import lazy
from multigpu.workloads.base import Workload
from multigpu.workloads.own.description import Models

# imported when one is made: a Run can be checked without it
OWN = lazy("multigpu.workloads.own.batches:OwnBatches")
WORKLOAD = Workload(name="own", unit="samples", models=Models(), inputs={"own": OWN}, checked=True)
