"""An examination in the process of a test, where nothing hangs and nothing ends itself."""

import math
from pathlib import Path

from multigpu.user_model.describe import describe
from multigpu.user_model.examining import Examined
from multigpu.workloads.own.job import Job, load_job

TWICE_S = 60.0  # without a limit, so long batches and model may take to be made again


def examine_here(
    job: Job | str,
    folder: Path,
    replicas: int,
    timed: bool,
    within_s: float = math.inf,
    compiled: bool = False,
) -> Examined:
    """Examine a job in this process, without a limit; a JobError says what is wrong with it."""
    named = job if isinstance(job, str) else ""
    loaded = load_job(job) if isinstance(job, str) else job
    twice_s = TWICE_S if math.isinf(within_s) else within_s / 2
    described = describe(loaded, folder, replicas, named, timed, twice_s=twice_s, compiled=compiled)
    return Examined(described, loaded.batch_size, loaded.precision)
