"""How long a batch of a user's job takes to make by itself."""

import time
from statistics import median
from typing import Any

from multigpu.workloads.own.batches import arrays_of_step, batches_of
from multigpu.workloads.own.job import Job

LOOKED_S, MOST, LEAST = 0.5, 20, 2
"""Batches are made for so many seconds, so many at most and so many at least, after a first one."""


def making_of(job: Job, framework: str, replicas: int) -> dict[str, Any]:
    """Time the making of one device's batch with nothing beside it: `batch_s`, the median of
    several after a first one, in seconds, and who makes it, `batch_by`.
    """
    batches = batches_of(framework, job, job.batch_size, replicas, 0, 0)
    arrays_of_step(batches, 0)
    took_s: list[float] = []
    while len(took_s) < LEAST or (sum(took_s) < LOOKED_S and len(took_s) < MOST):
        began = time.perf_counter()
        arrays_of_step(batches, 1 + len(took_s))
        took_s.append(time.perf_counter() - began)
    drawn = callable(job.batch) and not hasattr(job.batch, "__iter__")
    return {
        "batch_s": median(took_s),
        "batch_by": "batch()" if drawn else type(job.batch).__name__,
    }
