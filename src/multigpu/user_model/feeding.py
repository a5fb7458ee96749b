"""How long a batch of a user's job takes to make by itself."""

import time
from statistics import median
from typing import Any

from multigpu.workloads.own.batches import arrays_of_step, batches_of
from multigpu.workloads.own.job import Job

LOOKED_S, MOST = 0.5, 20
"""Batches are made for so many seconds, and so many at most, after a first one; a first one that
takes as long by itself is what is told.
"""


def making_of(job: Job, framework: str, replicas: int) -> dict[str, Any]:
    """Time the making of one device's batch with nothing beside it: `batch_s`, the median of
    several after a first one, in seconds, and who makes it, `batch_by`.
    """
    batches = batches_of(framework, job, job.batch_size, replicas, 0, 0)
    took_s = [_made_s(batches, 0)]
    if took_s[0] < LOOKED_S:
        took_s = [_made_s(batches, 1)]
    while sum(took_s) < LOOKED_S and len(took_s) < MOST:
        took_s.append(_made_s(batches, 1 + len(took_s)))
    drawn = callable(job.batch) and not hasattr(job.batch, "__iter__")
    return {"batch_s": median(took_s), "batch_by": "batch()" if drawn else type(job.batch).__name__}


def _made_s(batches: Any, step: int) -> float:
    began = time.perf_counter()
    arrays_of_step(batches, step)
    return time.perf_counter() - began
