"""Models of users: whatever `multigpu.compare` was given, described when it was first seen
(`description.Models`).
"""

from multigpu.lazy import lazy
from multigpu.workloads.base import Workload
from multigpu.workloads.own.description import Models

# imported when one is made: a Run can be checked without it
OWN = lazy("multigpu.workloads.own.batches:OwnBatches")
WORKLOAD = Workload(name="own", unit="samples", models=Models(), inputs={"own": OWN}, checked=True)
